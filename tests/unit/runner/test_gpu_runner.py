"""The GPU's runner: plans give the tokens of a plain forward pass, and steps can be submitted ahead of results."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_kit import DEVICE, HAS_GPU
from octavo.engine.parallel.comm import Comm
from octavo.engine.plan import BlockCopy, SlotWork, StepPlan
from octavo.engine.runner.context import PagedAttention
from octavo.engine.runner.device_tables import DeviceTables
from octavo.engine.runner.gpu_runner import GpuRunner
from octavo.engine.runner.step_graph import decode_sizes, mixed_sizes
from octavo.engine.runner.step_inputs import Work
from octavo.kernels.attention import AttentionSpec
from octavo.kernels.triton.attention import TritonAttention
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.sampling_params import SamplingParams
from unit.runner.tiny_runner import (
    BLOCK_SIZE,
    FULL,
    HEAD_DIM,
    MIXED,
    NAN_TOKEN,
    VOCAB_SIZE,
    TinyModel,
    admit,
    generate,
    greedy,
    make_runner,
    oracle,
)

pytestmark = pytest.mark.skipif(HAS_GPU, reason="the tiny model lives on the host; tests/gpu has models on the GPU")

PROMPT = [(i * 37) % 89 for i in range(45)]
TABLES = ([5, 2, 9, 7], [30, 21, 33, 26])
NUM_BLOCKS = 40


def make_gpu_runner(groups: tuple[GroupSpec, ...] = FULL) -> GpuRunner:
    model, num_slots = TinyModel(groups), 4
    layout = KVLayout(BLOCK_SIZE, model.num_kv_heads, HEAD_DIM, "float32", groups)
    fields = (model.num_heads, model.num_kv_heads, HEAD_DIM, BLOCK_SIZE, torch.float32, torch.float32, str(DEVICE))
    backends = [TritonAttention(AttentionSpec(*fields, HEAD_DIM**-0.5, group.window)) for group in groups]
    tables = DeviceTables(
        num_slots,
        model.max_position,
        BLOCK_SIZE,
        len(groups),
        vocab_size=VOCAB_SIZE,
        eos_token_ids=frozenset({1}),
        device=DEVICE,
    )
    tables.set_padding_block(NUM_BLOCKS)
    kv = torch.full((NUM_BLOCKS + 1, *layout.block_shape), float("nan"))
    return GpuRunner(model, tables, PagedAttention(layout, backends, kv), Comm(), max_rows=300)


@pytest.mark.parametrize("groups", [FULL, MIXED], ids=["one-group", "two-groups"])
@pytest.mark.parametrize("chunk", [1000, 7])
def test_greedy_tokens_equal_a_plain_forward_pass(groups: tuple[GroupSpec, ...], chunk: int) -> None:
    runner = make_gpu_runner(groups)
    assert generate(runner, admit(0, PROMPT, *TABLES[: len(groups)]), 8, chunk) == oracle(groups, PROMPT, 8)
    runner.execute(StepPlan(99, release=[0]))
    runner.tables.check_integrity()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, seed=5, ignore_eos=True),
        SamplingParams(temperature=1.0, top_k=5, repetition_penalty=1.3, seed=5, ignore_eos=True, logprobs=2),
    ],
    ids=["on-the-device", "on-the-host"],
)
def test_sampled_tokens_equal_the_cpu_runners(params: SamplingParams) -> None:
    item = admit(0, PROMPT[:20], [5, 2, 9], params=params)
    assert generate(make_gpu_runner(), item, 8) == generate(make_runner(), item, 8)


def test_steps_are_submitted_before_results_are_known() -> None:
    runner = make_gpu_runner()
    first = runner.submit(StepPlan(1, admit=[admit(0, PROMPT, TABLES[0])], work=[SlotWork(0, 0, 45, True)]))
    second = runner.submit(StepPlan(2, work=[SlotWork(0, 45, 1, True)]))
    third = runner.submit(StepPlan(3, work=[SlotWork(0, 46, 1, True)]))
    tokens = [result().sampled[0].token_id for result in (first, second, third)]
    assert tokens == oracle(FULL, PROMPT, 3)


def test_a_padded_decode_step_gives_the_same_token() -> None:
    runner = make_gpu_runner()
    generate(runner, admit(1, PROMPT, TABLES[0]), 1)
    runner._prepare_decode(np.array([1]), np.array([45]), 4)
    runner._decode(4)
    assert runner._output.chosen[0].item() == oracle(FULL, PROMPT, 2)[1]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_sequence_whose_logits_are_not_finite_fails_alone() -> None:
    runner = make_gpu_runner()
    items = [admit(0, [3, NAN_TOKEN], [1]), admit(1, PROMPT[:10], [2])]
    plan = StepPlan(1, admit=items, work=[SlotWork(0, 0, 2, True), SlotWork(1, 0, 10, True)])
    failed, fine = runner.execute(plan).sampled
    assert failed.error is not None
    assert "not finite" in failed.error.message
    assert [fine.token_id] == oracle(FULL, PROMPT[:10], 1)


def test_a_fork_copies_its_partial_block() -> None:
    runner = make_gpu_runner()
    runner.execute(StepPlan(1, admit=[admit(0, PROMPT[:20], [1, 2])], work=[SlotWork(0, 0, 20, True)]))
    fork = admit(1, PROMPT[:20], [1, 5], params=greedy())
    plan = StepPlan(2, admit=[fork], copies=[BlockCopy(2, 5)], work=[SlotWork(1, 19, 1, True)])
    assert [runner.execute(plan).sampled[0].token_id] == oracle(FULL, PROMPT[:20], 1)


@pytest.mark.parametrize("groups", [FULL, MIXED], ids=["one-group", "two-groups"])
def test_a_padded_mixed_step_gives_the_same_tokens(groups: tuple[GroupSpec, ...]) -> None:
    runner = make_gpu_runner(groups)
    generate(runner, admit(1, PROMPT, *TABLES[: len(groups)]), 1)
    other = [[block + 2 for block in table][:2] for table in ([9, 11], [34, 36])]
    runner.submit(StepPlan(2, admit=[admit(2, PROMPT[:20], *other[: len(groups)])]))
    work = Work(np.array([1, 2]), np.array([45, 0]), np.array([1, 20]), np.array([True, True]))
    batches, sampled, sampled_rows = runner._inputs.set_mixed(work, 64)
    runner._plan(batches, 64)
    hidden = runner._layers(64)
    assert len(hidden) == 64
    runner._sample(runner.model.logits(hidden.index_select(0, sampled_rows)), sampled)
    want = [oracle(groups, PROMPT, 2)[1], *oracle(groups, PROMPT[:20], 1)]
    assert runner._output.chosen[:2].tolist() == want


@pytest.mark.parametrize("max_rows", [1, 7, 64, 512])
def test_every_number_of_rows_has_a_captured_size_near_it(max_rows: int) -> None:
    for sizes in (decode_sizes(max_rows), mixed_sizes(max_rows)):
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == max_rows
    for num_rows in range(9, max_rows + 1):
        size = next(s for s in decode_sizes(max_rows) if s >= num_rows)
        assert size - num_rows < max(8, num_rows / 4)
