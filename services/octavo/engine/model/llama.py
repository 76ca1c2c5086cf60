"""Llama and the models built like it: Mistral, Qwen2, Qwen3, SmolLM2.

Pre-norm decoder layers of rotary, grouped-query attention and a gated feed-forward.  The classes below `Llama` differ
in the defaults of their configs, in biases, in norms of q and k, and in which layers attend through a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from octavo.engine.model.activation import activation
from octavo.engine.model.base import AttentionContext, CausalLM, LayerAttention, RotaryAttention
from octavo.engine.model.geometry import check_sizes, require, require_numbers, resolve_length
from octavo.engine.model.linear import HeadLinear, Linear, PackedLinear, Place, RowLinear
from octavo.engine.model.rope import RopeTable, read_rope
from octavo.engine.model.weight import WeightSlot, WeightTable, replicated
from octavo.engine.model.window import layer_groups
from octavo.errors import InvalidInput
from octavo.kernels import op
from octavo.kernels.attention import HeadNorm
from octavo.kernels.cpu.layer import LayerWeights, NativeLayer
from octavo.kernels.cpu.native import PackedWeight

PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Which Hugging Face linears each fused one holds, in order."""

REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


Attend = Callable[[int, "_Layer", torch.Tensor], torch.Tensor]
"""(layer, its weights, qkv [num_rows, num_heads + 2 num_kv_heads, head_dim]) → [num_rows, num_heads, head_dim]."""


@dataclass(frozen=True)
class Bias:
    """Which linears of a layer have a bias."""

    qkv: bool
    output: bool
    mlp: bool


class _Layer:
    """One decoder layer of one rank."""

    def __init__(self, place: Place, config: Mapping[str, Any], bias: Bias, *, has_qk_norm: bool) -> None:
        hidden, ffn, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
        q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
        self._head_dim, self._eps = head_dim, config["rms_norm_eps"]
        self._num_ranks = place.comm.size
        self._num_heads = config["num_attention_heads"] // place.comm.size
        self._num_kv_heads = config["num_key_value_heads"] // place.comm.size
        qkv_sizes = dict(zip(PACKED["qkv_proj"], (q, kv, kv), strict=True))
        self.qkv_proj = PackedLinear(place, hidden, qkv_sizes, has_bias=bias.qkv)
        self.o_proj = RowLinear(place, q, hidden, has_bias=bias.output)
        self.gate_up_proj = PackedLinear(place, hidden, dict.fromkeys(PACKED["gate_up_proj"], ffn), has_bias=bias.mlp)
        self.down_proj = RowLinear(place, ffn, hidden, has_bias=bias.mlp)
        self.input_norm, self.mlp_norm = place.empty_norm(hidden), place.empty_norm(hidden)
        self.head_norm = (
            HeadNorm(place.empty_norm(head_dim), place.empty_norm(head_dim), self._eps) if has_qk_norm else None
        )
        self._act = None if config["hidden_act"] == "silu" else activation(config["hidden_act"], "hidden_act")

    def linears(self) -> tuple[Linear, ...]:
        return self.qkv_proj, self.o_proj, self.gate_up_proj, self.down_proj

    def slots(self, prefix: str) -> Iterator[tuple[str, WeightSlot]]:
        yield f"{prefix}input_layernorm.weight", replicated(self.input_norm)
        yield from self.qkv_proj.slots(f"{prefix}self_attn.")
        if self.head_norm is not None:
            yield f"{prefix}self_attn.q_norm.weight", replicated(self.head_norm.q)
            yield f"{prefix}self_attn.k_norm.weight", replicated(self.head_norm.k)
        yield from self.o_proj.slots(f"{prefix}self_attn.o_proj")
        yield f"{prefix}post_attention_layernorm.weight", replicated(self.mlp_norm)
        yield from self.gate_up_proj.slots(f"{prefix}mlp.")
        yield from self.down_proj.slots(f"{prefix}mlp.down_proj")

    def native(self) -> NativeLayer | None:
        """This layer in one native call, where that is possible; after its weights are loaded."""
        linears = [(linear.weight, linear.bias) for linear in self.linears()]
        packed = [(weight, bias) for weight, bias in linears if isinstance(weight, PackedWeight)]
        if len(packed) < len(linears) or self._act is not None or self._num_ranks > 1:
            return None
        qkv, output, gate_up, down = packed
        norms = self.input_norm, self.mlp_norm, self.head_norm
        weights = LayerWeights(qkv, output, gate_up, down, *norms, self._eps)
        return None if NativeLayer.validate(weights) else NativeLayer(weights)

    def attend(self, index: int, x: torch.Tensor, attend: Attend) -> torch.Tensor:
        num_rows = x.shape[0]
        qkv = self.qkv_proj(x).view(num_rows, self._num_heads + 2 * self._num_kv_heads, self._head_dim)
        return self.o_proj(attend(index, self, qkv).reshape(num_rows, self._num_heads * self._head_dim))

    def rotate(
        self, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """q, k and v with norms and rotation applied."""
        num_heads, num_kv_heads = self._num_heads, self._num_kv_heads
        qk, v = qkv.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
        if self.head_norm is not None:
            q, k = qk.split((num_heads, num_kv_heads), dim=1)
            norm = self.head_norm
            q, k = op.rms_norm(q, norm.q, norm.eps), op.rms_norm(k, norm.k, norm.eps)
            qk = torch.cat((q, k), dim=1)
        q, k = op.rope_(qk, cos, sin).split((num_heads, num_kv_heads), dim=1)
        return q, k, v

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._act is None:
            return self.down_proj(op.linear_silu_mul(x, self.gate_up_proj.weight, self.gate_up_proj.bias))
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(self._act(gate) * up)

    def __call__(
        self, index: int, x: torch.Tensor, residual: torch.Tensor | None, attend: Attend
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the layer adds, and the stream that it is added to; `x` is what the layer before adds to `residual`."""
        x, residual = op.add_rms_norm(x, residual, self.input_norm, self._eps)
        x, residual = op.add_rms_norm(self.attend(index, x, attend), residual, self.mlp_norm, self._eps)
        return self.feed_forward(x), residual

    def fused(self, index: int, x: torch.Tensor, attend: Attend) -> torch.Tensor:
        """As a call, for few rows on a GPU, from stream to stream: norms and additions ride on the products."""
        num_rows = x.shape[0]
        qkv = self.qkv_proj.fused(x, norm=self.input_norm, eps=self._eps)
        out = attend(index, self, qkv.view(num_rows, self._num_heads + 2 * self._num_kv_heads, self._head_dim))
        x = self.o_proj.fused(out.view(num_rows, self._num_heads * self._head_dim), residual=x)
        gated = self.gate_up_proj.fused(x, norm=self.mlp_norm, eps=self._eps, is_gated=True)
        return self.down_proj.fused(gated, residual=x)


class LlamaForCausalLM(CausalLM):
    """Llama (and SmolLM2), from a Hugging Face config."""

    defaults: ClassVar[dict[str, Any]] = {}
    has_qk_norm: ClassVar[bool] = False

    def __init__(
        self,
        config: Mapping[str, Any],
        place: Place,
        max_model_len: int = 0,
        rope_scaling: Mapping[str, Any] | str | None = None,
    ) -> None:
        """`max_model_len` 0 means the model's own limit.  Raises `InvalidInput` when the config cannot be served."""
        config = self.complete(config)
        problems = check_sizes(config, place.comm.size)
        if problems:
            raise InvalidInput.of(problems)
        rope = read_rope(config, config["head_dim"], rope_scaling)
        self.vocab_size = config["vocab_size"]
        self.num_heads = config["num_attention_heads"] // place.comm.size
        self.num_kv_heads = config["num_key_value_heads"] // place.comm.size
        self.head_dim = config["head_dim"]
        self.max_position = resolve_length(max_model_len, rope.max_position)
        self.groups = layer_groups(self.windows(config), self.max_position)
        self._eps = config["rms_norm_eps"]
        self._is_fusable = place.comm.size == 1 and config["hidden_act"] == "silu"
        self._rope = RopeTable(rope, self.max_position, place.compute_dtype, place.device)
        bias = self.biases(config)
        self._embedding = place.empty(self.vocab_size, config["hidden_size"])
        self._layers = [
            _Layer(place, config, bias, has_qk_norm=self.has_qk_norm) for _ in range(config["num_hidden_layers"])
        ]
        self._norm = place.empty_norm(config["hidden_size"])
        self._compute_dtype = place.compute_dtype
        self._native: list[NativeLayer] = []
        self._is_tied = bool(config["tie_word_embeddings"])
        tied = self._embedding if self._is_tied else None
        self._head = HeadLinear(place, config["hidden_size"], self.vocab_size, tied)
        self.weights = WeightTable(self._slots(), "model.")
        self.weights.ignore("rotary_emb.inv_freq", *(["lm_head.weight"] if self._is_tied else []))

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        super().load_weights(weights)
        layers = [native for layer in self._layers if (native := layer.native()) is not None]
        self._native = layers if len(layers) == len(self._layers) else []

    @classmethod
    def complete(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config with everything that a checkpoint may leave out."""
        base = {
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            "max_position_embeddings": 2048,
        }
        full = {**base, **cls.defaults, **config}
        require(full, *REQUIRED)
        if full.get("num_key_value_heads") is None:
            full["num_key_value_heads"] = full["num_attention_heads"]
        if full.get("head_dim") is None:
            full["head_dim"] = full["hidden_size"] // full["num_attention_heads"]
        require(full, "num_key_value_heads", "head_dim", "max_position_embeddings")
        require_numbers(full, "rms_norm_eps")
        return full

    @classmethod
    def biases(cls, config: Mapping[str, Any]) -> Bias:
        return Bias(bool(config["attention_bias"]), bool(config["attention_bias"]), bool(config["mlp_bias"]))

    @classmethod
    def windows(cls, config: Mapping[str, Any]) -> list[int]:
        """Per layer, how many tokens (its own included) a token attends to; 0 means all."""
        return [0] * config["num_hidden_layers"]

    def linears(self) -> Iterator[Linear]:
        for layer in self._layers:
            yield from layer.linears()
        yield self._head

    def _slots(self) -> Iterator[tuple[str, WeightSlot]]:
        yield "model.embed_tokens.weight", replicated(self._embedding)
        for index, layer in enumerate(self._layers):
            yield from layer.slots(f"model.layers.{index}.")
        yield "model.norm.weight", replicated(self._norm)
        if not self._is_tied:
            yield from self._head.slots("lm_head")

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionContext,
        beat: Callable[[], None],
    ) -> torch.Tensor:
        x = F.embedding(token_ids, self._embedding).to(self._compute_dtype)
        if self._native and isinstance(attention, LayerAttention) and attention.has_layer_call:
            return self._forward_native(x, positions, attention, beat)
        residual: torch.Tensor | None = None
        attend = self._attend(positions, attention)
        if self._is_fusable and op.is_few(x):
            for index, layer in enumerate(self._layers):
                x = layer.fused(index, x, attend)
                beat()
            return op.add_rms_norm(x, None, self._norm, self._eps)[0]
        for index, layer in enumerate(self._layers):
            x, residual = layer(index, x, residual, attend)
            beat()
        return op.add_rms_norm(x, residual, self._norm, self._eps)[0]

    def _forward_native(
        self, x: torch.Tensor, positions: torch.Tensor, attention: LayerAttention, beat: Callable[[], None]
    ) -> torch.Tensor:
        """The same hidden states, bit for bit, with one call a layer."""
        residual, rotary = torch.empty_like(x), self._rope.rotary(positions)
        for index, layer in enumerate(self._native):
            layer.run(attention.layer_call(index), rotary, x, residual, is_first=index == 0)
            beat()
        return op.add_rms_norm(x, residual, self._norm, self._eps)[0]

    def _attend(self, positions: torch.Tensor, attention: AttentionContext) -> Attend:
        """Attention of this step, which norms and rotates by itself where it can."""
        if isinstance(attention, RotaryAttention) and attention.has_rotary:
            attend_rotary, rotary = attention.attend_rotary, self._rope.rotary(positions)
            return lambda index, layer, qkv: attend_rotary(index, qkv, rotary, layer.head_norm)
        cos, sin = self._rope.at(positions)
        return lambda index, layer, qkv: attention(index, *layer.rotate(qkv, cos, sin))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._head(hidden)


class MistralForCausalLM(LlamaForCausalLM):
    """Mistral: no biases; every layer attends through `sliding_window` when the config has one."""

    defaults: ClassVar[dict[str, Any]] = {"num_key_value_heads": 8, "sliding_window": 4096}

    @classmethod
    def biases(cls, config: Mapping[str, Any]) -> Bias:
        return Bias(False, False, False)

    @classmethod
    def windows(cls, config: Mapping[str, Any]) -> list[int]:
        return [config["sliding_window"] or 0] * config["num_hidden_layers"]


class Qwen2ForCausalLM(LlamaForCausalLM):
    """Qwen2 and Qwen2.5: q, k and v have biases; upper layers may attend through a window."""

    defaults: ClassVar[dict[str, Any]] = {
        "max_position_embeddings": 32768,
        "use_sliding_window": False,
        "sliding_window": 4096,
        "max_window_layers": 28,
    }

    @classmethod
    def biases(cls, config: Mapping[str, Any]) -> Bias:
        return Bias(True, False, False)

    @classmethod
    def windows(cls, config: Mapping[str, Any]) -> list[int]:
        num_layers = config["num_hidden_layers"]
        window = (config["sliding_window"] or 0) if config["use_sliding_window"] else 0
        kinds = config.get("layer_types")
        if kinds:
            return [window if kind == "sliding_attention" else 0 for kind in kinds]
        return [window if index >= config["max_window_layers"] else 0 for index in range(num_layers)]


class Qwen3ForCausalLM(Qwen2ForCausalLM):
    """Qwen3: RMS norms over each head of q and k; biases only if the config says so."""

    defaults: ClassVar[dict[str, Any]] = {**Qwen2ForCausalLM.defaults, "head_dim": 128}
    has_qk_norm: ClassVar[bool] = True

    @classmethod
    def biases(cls, config: Mapping[str, Any]) -> Bias:
        return Bias(bool(config["attention_bias"]), bool(config["attention_bias"]), False)
