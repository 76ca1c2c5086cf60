"""A layer in one native call gives the bits of its parts called one by one."""

from __future__ import annotations

import pytest
import torch

from octavo.engine.model.loader import load
from octavo.engine.model.registry import create_model
from octavo.engine.parallel.comm import Comm
from octavo.engine.runner.context import PagedAttention
from octavo.hub.files import ModelFiles
from octavo.kernels.attention import AttentionSpec
from octavo.kernels.cpu import native
from octavo.kernels.cpu.native_attention import CpuAttention
from octavo.kernels.self_check import make_batch
from octavo.kv.layout import KVLayout
from octavo.testing.tiny_model import tiny_config

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C++ compiler here")

CONFIGS = {
    "llama with biases": tiny_config("llama", attention_bias=True, mlp_bias=True),
    "smollm2": tiny_config("smollm2"),
    "qwen2": tiny_config("qwen2"),
    "qwen3": tiny_config("qwen3"),
}
BLOCK_SIZE = 16
NUM_ROWS = 37


class PlainAttention:
    """Hides what the context can do beyond attention."""

    def __init__(self, inner: PagedAttention) -> None:
        self._inner = inner

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self._inner(layer, q, k, v)


class RotatingAttention(PlainAttention):
    """Hides only that layers can be one call."""

    has_rotary = True

    def attend_rotary(self, *arguments):  # type: ignore[no-untyped-def]  # as the context's
        return self._inner.attend_rotary(*arguments)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("label", CONFIGS)
def test_one_call_gives_the_bits_of_many(label: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, torch_dtype = CONFIGS[label], getattr(torch, dtype)
    model = create_model(config, torch_dtype, "cpu", Comm())
    load(model, ModelFiles("tiny", "none", config, (), None), "dummy", 1)
    layout = KVLayout(BLOCK_SIZE, model.num_kv_heads, model.head_dim, dtype, model.groups)
    spec = AttentionSpec(
        model.num_heads, model.num_kv_heads, model.head_dim, BLOCK_SIZE, torch_dtype, torch_dtype, "cpu", 0.25
    )
    ids = torch.randint(0, config["vocab_size"], (NUM_ROWS,), generator=torch.Generator().manual_seed(2))
    native_calls: list[int] = []

    def run(wrap: type | None, cuts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        pool = torch.zeros((4, *layout.block_shape), dtype=torch_dtype)
        paged = PagedAttention(layout, [CpuAttention(spec) for _ in model.groups], pool)
        given = paged.layer_call
        monkeypatch.setattr(paged, "layer_call", lambda layer: (native_calls.append(layer), given(layer))[1])
        out = []
        for start, end in zip([0, *cuts], [*cuts, NUM_ROWS], strict=True):
            batch = make_batch([[2, 0, 3]], [end - start], [end], BLOCK_SIZE)
            paged.plan([batch] * len(model.groups))
            context = paged if wrap is None else wrap(paged)
            out.append(model.forward(ids[start:end], torch.arange(start, end), context, lambda: None))
        return torch.cat(out), pool

    with torch.inference_mode():
        want, want_pool = run(PlainAttention, [])
        assert not native_calls
        for wrap in (RotatingAttention, None):
            for cuts in ([], [36], [1, 2, 19]):
                got, pool = run(wrap, cuts)
                assert torch.equal(got, want), (wrap, cuts)
                assert torch.equal(pool, want_pool), (wrap, cuts)
    assert native_calls, "the model must have used its native layers"
