"""OPT (arXiv:2205.01068): learned positions, layer norms before or after each block, biases, ReLU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from octavo.engine.model.activation import activation
from octavo.engine.model.base import AttentionContext, CausalLM
from octavo.engine.model.geometry import check_sizes, require, resolve_length
from octavo.engine.model.linear import HeadLinear, Linear, PackedLinear, Place, RowLinear, WholeLinear
from octavo.engine.model.weight import WeightSlot, WeightTable, replicated
from octavo.engine.model.window import layer_groups
from octavo.errors import InvalidInput, Problem, show
from octavo.kernels import op

PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
"""Which Hugging Face linears each fused one holds, in order."""

POSITION_OFFSET = 2
"""The table of positions begins with two rows that no position uses."""

REQUIRED = (
    "vocab_size",
    "hidden_size",
    "ffn_dim",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)

_EPS = 1e-5


class _Norm:
    """A layer norm; without weights where the config has no affine norms."""

    def __init__(self, place: Place, size: int, *, is_affine: bool) -> None:
        self.weight = place.empty(size) if is_affine else None
        self.bias = place.empty(size) if is_affine else None

    def slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        if self.weight is not None and self.bias is not None:
            yield f"{name}.weight", replicated(self.weight)
            yield f"{name}.bias", replicated(self.bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return op.layer_norm(x, self.weight, self.bias, _EPS)


class _Layer:
    """One decoder layer of one rank."""

    def __init__(self, place: Place, config: Mapping[str, Any]) -> None:
        hidden, ffn, has_bias = config["hidden_size"], config["ffn_dim"], bool(config["enable_bias"])
        self._num_heads = config["num_attention_heads"] // place.comm.size
        self._head_dim = hidden // config["num_attention_heads"]
        self._is_norm_first = bool(config["do_layer_norm_before"])
        self._act = activation(config["activation_function"], "activation_function")
        self.qkv_proj = PackedLinear(place, hidden, dict.fromkeys(PACKED["qkv_proj"], hidden), has_bias=has_bias)
        self.out_proj = RowLinear(place, hidden, hidden, has_bias=has_bias)
        self.fc1 = PackedLinear(place, hidden, {"fc1": ffn}, has_bias=has_bias)
        self.fc2 = RowLinear(place, ffn, hidden, has_bias=has_bias)
        is_affine = bool(config["layer_norm_elementwise_affine"])
        self.attention_norm = _Norm(place, hidden, is_affine=is_affine)
        self.final_norm = _Norm(place, hidden, is_affine=is_affine)

    def linears(self) -> tuple[Linear, ...]:
        return self.qkv_proj, self.out_proj, self.fc1, self.fc2

    def slots(self, prefix: str) -> Iterator[tuple[str, WeightSlot]]:
        yield from self.qkv_proj.slots(f"{prefix}self_attn.")
        yield from self.out_proj.slots(f"{prefix}self_attn.out_proj")
        yield from self.attention_norm.slots(f"{prefix}self_attn_layer_norm")
        yield from self.fc1.slots(prefix)
        yield from self.fc2.slots(f"{prefix}fc2")
        yield from self.final_norm.slots(f"{prefix}final_layer_norm")

    def attend(self, index: int, x: torch.Tensor, attention: AttentionContext) -> torch.Tensor:
        num_rows = x.shape[0]
        qkv = self.qkv_proj(x).view(num_rows, 3 * self._num_heads, self._head_dim)
        q, k, v = qkv.split(self._num_heads, dim=1)
        return self.out_proj(attention(index, q, k, v).reshape(num_rows, self._num_heads * self._head_dim))

    def __call__(self, index: int, x: torch.Tensor, attention: AttentionContext) -> torch.Tensor:
        if self._is_norm_first:
            x = x + self.attend(index, self.attention_norm(x), attention)
            return x + self.fc2(self._act(self.fc1(self.final_norm(x))))
        x = self.attention_norm(x + self.attend(index, x, attention))
        return self.final_norm(x + self.fc2(self._act(self.fc1(x))))


class OPTForCausalLM(CausalLM):
    """OPT, from a Hugging Face config."""

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
        if rope_scaling:
            problems.append(Problem("rope_scaling", show(rope_scaling), "OPT has learned positions and no RoPE"))
        if problems:
            raise InvalidInput.of(problems)
        hidden, width = config["hidden_size"], config["word_embed_proj_dim"]
        self.vocab_size = config["vocab_size"]
        self.num_heads = self.num_kv_heads = config["num_attention_heads"] // place.comm.size
        self.head_dim = hidden // config["num_attention_heads"]
        self.max_position = resolve_length(max_model_len, config["max_position_embeddings"])
        self.groups = layer_groups([0] * config["num_hidden_layers"], self.max_position)
        self._embedding = place.empty(self.vocab_size, width)
        self._positions = place.empty(config["max_position_embeddings"] + POSITION_OFFSET, hidden)
        is_projected = width != hidden
        self._project_in = WholeLinear(place, width, hidden) if is_projected else None
        self._project_out = WholeLinear(place, hidden, width) if is_projected else None
        self._layers = [_Layer(place, config) for _ in range(config["num_hidden_layers"])]
        has_norm = config["do_layer_norm_before"] and not config["_remove_final_layer_norm"]
        is_affine = bool(config["layer_norm_elementwise_affine"])
        self._norm = _Norm(place, hidden, is_affine=is_affine) if has_norm else None
        self._is_tied = bool(config["tie_word_embeddings"])
        self._head = HeadLinear(place, width, self.vocab_size, self._embedding if self._is_tied else None)
        self.weights = WeightTable(self._slots(), "model.")
        if self._is_tied:
            self.weights.ignore("lm_head.weight")

    @classmethod
    def complete(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config with everything that a checkpoint may leave out, and its sizes by the names Llama uses too."""
        base = {
            "activation_function": "relu",
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
            "enable_bias": True,
            "layer_norm_elementwise_affine": True,
            "tie_word_embeddings": True,
            "max_position_embeddings": 2048,
        }
        full = {**base, **config}
        require(full, *REQUIRED)
        if full.get("word_embed_proj_dim") is None:
            full["word_embed_proj_dim"] = full["hidden_size"]
        full["num_key_value_heads"] = full["num_attention_heads"]
        full["intermediate_size"] = full["ffn_dim"]
        return full

    def linears(self) -> Iterator[Linear]:
        for layer in self._layers:
            yield from layer.linears()
        if self._project_in is not None and self._project_out is not None:
            yield from (self._project_in, self._project_out)
        yield self._head

    def _slots(self) -> Iterator[tuple[str, WeightSlot]]:
        name = "model.decoder."
        yield f"{name}embed_tokens.weight", replicated(self._embedding)
        yield f"{name}embed_positions.weight", replicated(self._positions)
        if self._project_in is not None and self._project_out is not None:
            yield from self._project_in.slots(f"{name}project_in")
            yield from self._project_out.slots(f"{name}project_out")
        for index, layer in enumerate(self._layers):
            yield from layer.slots(f"{name}layers.{index}.")
        if self._norm is not None:
            yield from self._norm.slots(f"{name}final_layer_norm")
        if not self._is_tied:
            yield from self._head.slots("lm_head")

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionContext,
        beat: Callable[[], None],
    ) -> torch.Tensor:
        x = F.embedding(token_ids, self._embedding)
        if self._project_in is not None:
            x = self._project_in(x)
        x = x + F.embedding(positions + POSITION_OFFSET, self._positions)
        for index, layer in enumerate(self._layers):
            x = layer(index, x, attention)
            beat()
        return x if self._norm is None else self._norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        if self._project_out is not None:
            hidden = self._project_out(hidden)
        return self._head(hidden)
