"""A hand-made model of two layers, and a runner around it, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F

from octavo.engine.model.base import AttentionContext, CausalLM
from octavo.engine.model.linear import Linear
from octavo.engine.parallel.comm import Comm
from octavo.engine.plan import SlotAdmit, SlotWork, StepPlan
from octavo.engine.runner.context import PagedAttention
from octavo.engine.runner.runner import Runner
from octavo.engine.runner.slots import SlotTables
from octavo.kernels import op
from octavo.kernels.attention import AttentionSpec
from octavo.kernels.cpu.attention import TorchCpuAttention
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.sampling_params import SamplingParams

VOCAB_SIZE, HEAD_DIM, BLOCK_SIZE, WINDOW = 97, 16, 16, 20
NAN_TOKEN = 90
"""The model's embedding of this id is not a number."""

FULL = (GroupSpec(0, "full", (0, 1)),)
MIXED = (GroupSpec(0, "full", (0,)), GroupSpec(1, "sliding", (1,), WINDOW))


class TinyModel(CausalLM):
    """Two layers of attention with a sine of positions; weights drawn from a seed."""

    vocab_size, num_heads, num_kv_heads, head_dim, max_position = VOCAB_SIZE, 4, 2, HEAD_DIM, 256

    def __init__(self, groups: tuple[GroupSpec, ...]) -> None:
        self.groups = groups
        generator = torch.Generator().manual_seed(3)
        width = self.num_heads * HEAD_DIM

        def weight(rows: int) -> torch.Tensor:
            return torch.randn(rows, width, generator=generator) / width**0.5

        self.embedding = 3 * weight(VOCAB_SIZE)
        self.embedding[NAN_TOKEN] = float("nan")
        self.head = 4 * weight(VOCAB_SIZE)
        self.qkv = [weight(width + 2 * self.num_kv_heads * HEAD_DIM) for _ in range(2)]
        self.out = [weight(width) for _ in range(2)]

    def linears(self) -> Iterable[Linear]:
        return ()

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, attention: AttentionContext, beat: Callable[[], None]
    ) -> torch.Tensor:
        x = F.embedding(token_ids, self.embedding)
        x = x + torch.outer(positions.double(), torch.arange(x.shape[1]).double() / 50).sin().float() * 0.3
        for layer in range(2):
            heads = op.linear(x, self.qkv[layer]).view(len(x), -1, HEAD_DIM)
            q, k, v = heads.split((self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
            x = x + op.linear(attention(layer, q, k, v).flatten(1), self.out[layer])
            beat()
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return op.linear(hidden, self.head).float()


def greedy(max_tokens: int = 32) -> SamplingParams:
    return SamplingParams(temperature=0.0, seed=0, max_tokens=max_tokens, ignore_eos=True)


def make_runner(groups: tuple[GroupSpec, ...] = FULL, num_blocks: int = 40, num_slots: int = 4) -> Runner:
    model = TinyModel(groups)
    layout = KVLayout(BLOCK_SIZE, model.num_kv_heads, HEAD_DIM, "float32", groups)
    backends = [
        TorchCpuAttention(
            AttentionSpec(
                model.num_heads,
                model.num_kv_heads,
                HEAD_DIM,
                BLOCK_SIZE,
                torch.float32,
                torch.float32,
                "cpu",
                HEAD_DIM**-0.5,
                group.window,
            )
        )
        for group in groups
    ]
    tables = SlotTables(
        num_slots,
        model.max_position,
        BLOCK_SIZE,
        len(groups),
        vocab_size=VOCAB_SIZE,
        eos_token_ids=frozenset({1}),
        device=torch.device("cpu"),
    )
    attention = PagedAttention(layout, backends, torch.zeros(num_blocks, *layout.block_shape))
    return Runner(model, tables, attention, Comm())


def admit(slot: int, ids: list[int], *tables: list[int], params: SamplingParams | None = None) -> SlotAdmit:
    return SlotAdmit(slot, ids, len(ids), 0, params or greedy(), [list(table) for table in tables])


def generate(runner: Runner, item: SlotAdmit, num_tokens: int, chunk: int = 1000) -> list[int]:
    """Admit `item`, prefill it in chunks and decode; release the slot with the next plan that says so."""
    ids, admits, at, step = list(item.token_ids), [item], 0, 0
    while len(ids) < len(item.token_ids) + num_tokens:
        num = min(chunk, len(ids) - at)
        is_last = at + num == len(ids)
        step += 1
        result = runner.execute(StepPlan(step, admit=admits, work=[SlotWork(item.slot, at, num, is_last)]))
        at, admits = at + num, []
        for sampled in result.sampled:
            assert sampled.error is None, sampled.error
            ids.append(sampled.token_id)
    return ids[len(item.token_ids) :]


def oracle(groups: tuple[GroupSpec, ...], prompt: list[int], num_tokens: int) -> list[int]:
    """The greedy tokens without cache, blocks or runner: the whole sequence again for each token."""
    model, ids = TinyModel(groups), list(prompt)
    windows = {layer: group.window for group in groups for layer in group.layers}

    def attention(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
        at = torch.arange(len(q))
        is_hidden = at[None, :] > at[:, None]
        if windows[layer]:
            is_hidden |= at[None, :] <= at[:, None] - windows[layer]
        scores = torch.einsum("thd,khd->htk", q, k) * HEAD_DIM**-0.5
        return torch.einsum("htk,khd->thd", scores.masked_fill(is_hidden, float("-inf")).softmax(-1), v)

    for _ in range(num_tokens):
        hidden = model.forward(torch.tensor(ids), torch.arange(len(ids)), attention, lambda: None)
        ids.append(int(model.logits(hidden[-1:]).argmax()))
    return ids[len(prompt) :]
