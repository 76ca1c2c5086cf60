"""The runner: plans give the tokens of a plain forward pass, and one sequence's errors stay with it."""

from __future__ import annotations

import pytest
import torch

from octavo.engine.plan import BlockCopy, SlotWork, StepPlan, TableGrow
from octavo.engine.runner import runner as runner_module
from octavo.engine.runner.runner import Runner
from octavo.errors import InternalError
from octavo.kv.layout import GroupSpec
from octavo.sampling_params import SamplingParams
from unit.runner.tiny_runner import FULL, MIXED, NAN_TOKEN, VOCAB_SIZE, admit, generate, greedy, make_runner, oracle

PROMPT = [(i * 37) % 89 for i in range(45)]
TABLES = ([5, 2, 9, 7], [30, 21, 33, 26])


def tables_for(groups: tuple[GroupSpec, ...], offset: int = 0) -> list[list[int]]:
    return [[block + offset for block in table] for table in TABLES[: len(groups)]]


@pytest.mark.parametrize("groups", [FULL, MIXED], ids=["one-group", "two-groups"])
@pytest.mark.parametrize("chunk", [1000, 16, 7])
def test_greedy_tokens_equal_a_plain_forward_pass(groups: tuple[GroupSpec, ...], chunk: int) -> None:
    got = generate(make_runner(groups), admit(0, PROMPT, *tables_for(groups)), 12, chunk)
    assert got == oracle(groups, PROMPT, 12)


@pytest.mark.parametrize("groups", [FULL, MIXED], ids=["one-group", "two-groups"])
def test_logits_have_the_same_bits_in_any_batch(groups: tuple[GroupSpec, ...]) -> None:
    def logprobs(runner: Runner, plan: StepPlan) -> dict[int, float]:
        return {s.slot: s.logprobs.logprob for s in runner.execute(plan).sampled if s.logprobs is not None}

    params = greedy().replace(logprobs=0)
    first = admit(0, PROMPT, *tables_for(groups), params=params)
    second = admit(1, PROMPT[:30], *tables_for(groups, 4), params=params)
    alone = logprobs(make_runner(groups), StepPlan(1, admit=[first], work=[SlotWork(0, 0, 45, True)]))
    runner = make_runner(groups)
    work = [SlotWork(1, 0, 30, True), SlotWork(0, 0, 20, False)]
    runner.execute(StepPlan(1, admit=[second, first], work=work))
    together = logprobs(runner, StepPlan(2, work=[SlotWork(1, 30, 1, True), SlotWork(0, 20, 25, True)]))
    assert together[0] == alone[0]


def test_grown_tables_hold_what_is_decoded() -> None:
    runner = make_runner()
    runner.execute(StepPlan(1, admit=[admit(2, PROMPT[:16], [3])], work=[SlotWork(2, 0, 16, True)]))
    ids = []
    for step in range(2, 8):
        grow = [TableGrow(2, 0, [8])] if step == 2 else []
        (sampled,) = runner.execute(StepPlan(step, grow=grow, work=[SlotWork(2, 14 + step, 1, True)])).sampled
        ids.append(sampled.token_id)
    assert ids == oracle(FULL, PROMPT[:16], 7)[1:]


def test_a_fork_copies_its_partial_block() -> None:
    runner = make_runner()
    runner.execute(StepPlan(1, admit=[admit(0, PROMPT[:20], [1, 2])], work=[SlotWork(0, 0, 20, True)]))
    fork = admit(1, PROMPT[:20], [1, 5])
    plan = StepPlan(2, admit=[fork], copies=[BlockCopy(2, 5)], work=[SlotWork(1, 19, 1, True)])
    (sampled,) = runner.execute(plan).sampled
    assert [sampled.token_id] == oracle(FULL, PROMPT[:20], 1)


def test_a_released_slot_takes_another_sequence() -> None:
    runner = make_runner()
    generate(runner, admit(0, PROMPT, [5, 2, 9, 7]), 3)
    plan = StepPlan(9, release=[0], admit=[admit(0, PROMPT[5:25], [2, 7])], work=[SlotWork(0, 0, 20, True)])
    (sampled,) = runner.execute(plan).sampled
    assert [sampled.token_id] == oracle(FULL, PROMPT[5:25], 1)
    runner.execute(StepPlan(10, release=[0]))
    runner.tables.check_integrity()


def test_admitting_into_a_taken_slot_is_impossible() -> None:
    runner = make_runner()
    runner.execute(StepPlan(1, admit=[admit(0, [1, 2], [3])]))
    with pytest.raises(InternalError, match="slot 0 is taken"):
        runner.execute(StepPlan(2, admit=[admit(0, [1, 2], [4])]))


@pytest.mark.parametrize("bad", [[3, VOCAB_SIZE], [-1, 3], []], ids=["too-high", "negative", "empty"])
def test_bad_tokens_end_their_sequence_only(bad: list[int]) -> None:
    runner = make_runner()
    items = [admit(0, bad, [1]), admit(1, PROMPT[:10], [2])]
    result = runner.execute(StepPlan(1, admit=items, work=[SlotWork(0, 0, 2, True), SlotWork(1, 0, 10, True)]))
    failed, fine = result.sampled
    assert failed.error is not None
    assert failed.error.code == "invalid_input"
    assert [fine.token_id] == oracle(FULL, PROMPT[:10], 1)


def test_nan_logits_end_their_sequence_only() -> None:
    runner = make_runner()
    items = [admit(0, [5, NAN_TOKEN, 6], [1]), admit(1, PROMPT[:10], [2])]
    plan = StepPlan(1, admit=items, work=[SlotWork(0, 0, 3, True), SlotWork(1, 0, 10, True)])
    failed, fine = runner.execute(plan).sampled
    assert failed.error is not None
    assert "nan" in failed.error.message
    assert [fine.token_id] == oracle(FULL, PROMPT[:10], 1)


def test_nan_in_a_freed_block_does_not_reach_its_next_owner() -> None:
    runner = make_runner()
    runner.execute(StepPlan(1, admit=[admit(0, [NAN_TOKEN] * 16, [4])], work=[SlotWork(0, 0, 16, True)]))
    assert runner.attention.kv[4].isnan().any()
    plan = StepPlan(2, release=[0], admit=[admit(0, PROMPT[:10], [4])], work=[SlotWork(0, 0, 10, True)])
    (sampled,) = runner.execute(plan).sampled
    assert [sampled.token_id] == oracle(FULL, PROMPT[:10], 1)


def test_a_shared_prefix_is_not_cleared() -> None:
    runner = make_runner()
    generate(runner, admit(0, PROMPT[:40], [5, 2, 9]), 1)
    plan = StepPlan(5, admit=[admit(1, [*PROMPT[:32], 7], [5, 2, 11])], work=[SlotWork(1, 32, 1, True)])
    (sampled,) = runner.execute(plan).sampled
    assert [sampled.token_id] == oracle(FULL, [*PROMPT[:32], 7], 1)


def test_a_row_that_makes_the_sampler_raise_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = runner_module.sample

    def breaking(logits_np, states):  # type: ignore[no-untyped-def]  # the sampler's own types
        if any(state.params.seed == 13 for state in states):
            raise ZeroDivisionError("odd settings")
        return sample(logits_np, states)

    monkeypatch.setattr(runner_module, "sample", breaking)
    items = [admit(0, PROMPT[:8], [1], params=SamplingParams(seed=13)), admit(1, PROMPT[:10], [2])]
    plan = StepPlan(1, admit=items, work=[SlotWork(0, 0, 8, True), SlotWork(1, 0, 10, True)])
    failed, fine = make_runner().execute(plan).sampled
    assert failed.error is not None
    assert "odd settings" in failed.error.message
    assert [fine.token_id] == oracle(FULL, PROMPT[:10], 1)


def test_work_beyond_the_known_tokens_or_blocks_is_an_error_of_its_own() -> None:
    runner = make_runner()
    items = [admit(0, PROMPT[:8], [1]), admit(1, PROMPT[:20], [2])]
    plan = StepPlan(1, admit=items, work=[SlotWork(0, 0, 9, True), SlotWork(1, 0, 20, True)])
    tokens, blocks = runner.execute(plan).sampled
    assert tokens.error is not None
    assert blocks.error is not None
    assert "too few for 20 tokens" in blocks.error.message


def test_the_model_beats_between_layers() -> None:
    runner, beats = make_runner(), []
    runner._beat = lambda: beats.append(1)
    runner.execute(StepPlan(1, admit=[admit(0, PROMPT[:8], [1])], work=[SlotWork(0, 0, 8, False)]))
    assert len(beats) == 2


def test_seeded_sampling_does_not_depend_on_the_batch() -> None:
    params = SamplingParams(temperature=1.0, seed=5, ignore_eos=True)
    alone = generate(make_runner(), admit(0, PROMPT[:20], [5, 2, 9], params=params), 8)
    runner = make_runner()
    generate(runner, admit(1, PROMPT[3:30], [11, 12, 13], params=params), 2)
    assert generate(runner, admit(0, PROMPT[:20], [5, 2, 9], params=params), 8, chunk=6) == alone
    assert torch.isfinite(runner.attention.kv).all()
