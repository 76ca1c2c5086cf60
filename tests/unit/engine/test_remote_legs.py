"""Decode legs in the scheduler: pages from a transfer, token 0 from elsewhere, and every way in which that ends."""

from __future__ import annotations

import random

import msgspec
import pytest

from engine_kit import VOCAB, FakeExecutor, make_core, make_request, oracle, run_all
from octavo.engine.core import EngineCore
from octavo.engine.reservation import Reservation
from octavo.errors import InvalidInput
from octavo.request import Request, TransferLeg


def decode_leg(request_id: str, prompt: list[int], **params: object) -> Request:
    return msgspec.structs.replace(
        make_request(request_id, prompt, **params),  # type: ignore[arg-type]
        transfer=TransferLeg("t-" + request_id, "consume"),
    )


def write_pages(core: EngineCore, reservation: Reservation, request: Request, num_tokens: int) -> None:
    """What a transfer does: the KV of the first tokens, in every group."""
    assert isinstance(core.executor, FakeExecutor)
    size = core.scheduler.spec.block_size
    for group, table in enumerate(reservation.tables):
        for position in range(reservation.num_shared * size, num_tokens):
            value = request.prompt_token_ids[position] + group * VOCAB
            core.executor.kv[table[position // size]][position % size] = value


def first_tokens(core: EngineCore, request: Request) -> dict[int, int]:
    return {s.index: oracle(request, s.index, core.scheduler.spec)[0] for s in request.sequences}


def receive(core: EngineCore, reservation: Reservation, request: Request) -> None:
    num_tokens = len(request.prompt_token_ids)
    write_pages(core, reservation, request, num_tokens)
    core.end_pages(reservation.transfer_id, num_tokens, first_tokens(core, request), True)


def num_computed(core: EngineCore) -> int:
    assert isinstance(core.executor, FakeExecutor)
    return core.executor.num_tokens


@pytest.mark.parametrize("num_prompt", [1, 16, 40, 48])
@pytest.mark.parametrize("num_groups", [1, 2])
def test_a_decode_leg_computes_no_token_of_its_prompt(num_prompt: int, num_groups: int) -> None:
    core = make_core(num_groups=num_groups)
    request = decode_leg("r", list(range(1, num_prompt + 1)))
    core.add_request(request)
    assert [s.state for s in core.states()] == ["waiting_kv"]
    assert core.step() == []
    (reservation,) = core.grant_pages()
    assert core.step() == []
    receive(core, reservation, request)
    tokens = run_all(core).outcomes["r", 0, 0].token_ids
    assert tokens[1:] == oracle(request, 0, core.scheduler.spec)[1:]
    assert tokens[0] == -1
    assert num_computed(core) == 7
    core.check_integrity()


def test_branches_fork_from_the_pages() -> None:
    core = make_core()
    request = decode_leg("r", list(range(1, 41)), n=3)
    core.add_request(request)
    (reservation,) = core.grant_pages()
    receive(core, reservation, request)
    outcomes = run_all(core).outcomes
    for index in range(3):
        assert outcomes["r", 0, index].token_ids[1:] == oracle(request, index, core.scheduler.spec)[1:]
    assert num_computed(core) == 7 * 3 + 2  # the branches that fork compute the last prompt token again


@pytest.mark.parametrize(("num_verified", "has_token"), [(0, False), (20, False), (32, True), (40, True)])
def test_without_all_pages_only_the_rest_is_computed(num_verified: int, has_token: bool) -> None:
    core = make_core()
    request = decode_leg("r", list(range(1, 41)))
    core.add_request(request)
    (reservation,) = core.grant_pages()
    write_pages(core, reservation, request, num_verified)
    core.end_pages("t-r", num_verified, first_tokens(core, request) if has_token else {}, False)
    tokens = run_all(core).outcomes["r", 0, 0].token_ids
    expected = oracle(request, 0, core.scheduler.spec)
    assert tokens[has_token:] == expected[has_token:]
    assert num_computed(core) == 40 - num_verified // 16 * 16 + 7


def test_an_own_prefix_is_not_pulled() -> None:
    core = make_core()
    core.add_request(make_request("a", range(1, 41), max_tokens=1))
    run_all(core)
    request = decode_leg("r", list(range(1, 61)))
    core.add_request(request)
    (reservation,) = core.grant_pages()
    assert reservation.num_shared == 2
    receive(core, reservation, request)
    outcome = run_all(core).outcomes["r", 0, 0]
    assert outcome.token_ids[1:] == oracle(request, 0, core.scheduler.spec)[1:]
    assert outcome.num_cached_tokens == 32


def test_pulled_pages_are_found_by_the_next_prompt() -> None:
    core = make_core()
    request = decode_leg("r", list(range(1, 41)))
    core.add_request(request)
    (reservation,) = core.grant_pages()
    receive(core, reservation, request)
    run_all(core)
    core.add_request(make_request("b", range(1, 41)))
    assert run_all(core).outcomes["b", 0, 0].num_cached_tokens == 32


def test_an_abort_ends_the_request_at_once_and_its_blocks_when_no_copy_runs() -> None:
    core = make_core(num_blocks=8)
    core.add_request(decode_leg("r", list(range(1, 41))))
    core.grant_pages()
    core.abort_request("r")
    assert [e.finish_reason for e in core.step()] == ["abort"]
    assert core.stats().num_free_blocks == 8 - 4
    core.end_pages("t-r", 0, {}, False)
    core.check_integrity()
    assert core.stats().num_free_blocks == 8


def test_an_abort_in_the_queue_leaves_nothing() -> None:
    core = make_core()
    core.add_request(decode_leg("r", list(range(1, 41))))
    core.abort_request("r")
    core.step()
    assert core.grant_pages() == []
    assert len(core.scheduler.remote) == 0


def test_a_transfer_id_is_used_once() -> None:
    core = make_core()
    core.add_request(decode_leg("r", [1, 2, 3]))
    again = msgspec.structs.replace(decode_leg("s", [1, 2, 3]), transfer=TransferLeg("t-r", "consume"))
    with pytest.raises(InvalidInput, match=r"transfer\.transfer_id: got 't-r'; must be new"):
        core.add_request(again)
    core.check_integrity()


def test_a_deadline_ends_one_that_waits() -> None:
    core = make_core()
    core.add_request(msgspec.structs.replace(decode_leg("r", [1, 2, 3]), deadline_unix_s=5.0))
    (emission,) = core.step(6.0)
    assert emission.error is not None
    assert emission.error.code == "deadline_exceeded"


def test_a_first_token_that_ends_the_request_needs_no_step() -> None:
    core = make_core()
    request = decode_leg("r", list(range(1, 41)), max_tokens=1)
    core.add_request(request)
    (reservation,) = core.grant_pages()
    receive(core, reservation, request)
    outcome = run_all(core).outcomes["r", 0, 0]
    assert (outcome.token_ids, outcome.finish_reason) == ([-1], "length")
    assert num_computed(core) == 0
    core.check_integrity()


def test_two_that_exceed_the_pool_together_come_one_after_the_other() -> None:
    core = make_core(num_blocks=8, max_model_len=128)
    requests = [decode_leg(name, [ord(name) % VOCAB] * 100) for name in "ab"]
    for request in requests:
        core.add_request(request)
    for request in requests:
        (reservation,) = core.grant_pages()
        receive(core, reservation, request)
        tokens = run_to_end(core, request.request_id)
        assert tokens[1:] == oracle(request, 0, core.scheduler.spec)[1:]


def run_to_end(core: EngineCore, request_id: str) -> list[int]:
    tokens = [-1]
    for _ in range(100):
        for emission in core.step():
            assert emission.request_id == request_id
            tokens += emission.token_ids
            if emission.finish_reason:
                return tokens
    raise AssertionError(f"{request_id} does not end: {core.states()}")


def test_pages_that_wait_behind_what_needs_their_blocks_are_given_up() -> None:
    """The head of the queue does not fit beside a sequence that waits behind it with its pages."""
    core = make_core(num_blocks=8, max_model_len=128)
    local = make_request("a", [7] * 90, outputs={0: [1]})
    remote = decode_leg("b", [9] * 64)
    core.add_request(local)
    core.set_paused(["a"], True)
    core.add_request(remote)
    (reservation,) = core.grant_pages()
    receive(core, reservation, remote)
    core.set_paused(["a"], False)
    outcomes = run_all(core).outcomes
    assert outcomes["b", 0, 0].token_ids[1:] == oracle(remote, 0, core.scheduler.spec)[1:]
    assert outcomes["a", 0, 0].token_ids[1:] == oracle(local, 0, core.scheduler.spec)[1:]
    assert num_computed(core) > 90 + 7 + 7  # part of what was given up was computed again


@pytest.mark.parametrize("seed", range(30))
def test_any_mix_of_legs_gives_the_oracles_tokens(seed: int) -> None:
    rng = random.Random(seed)
    core = make_core(num_blocks=rng.choice((12, 24)), max_model_len=160, num_groups=rng.choice((1, 2)), max_num_seqs=4)
    spec = core.scheduler.spec
    waiting: list[Reservation] = []
    requests: dict[str, Request] = {}
    aborted: set[str] = set()
    got: dict[tuple[str, int], dict[int, int]] = {}
    ended: set[tuple[str, int]] = set()
    for number in range(400):
        if number < 60 and rng.random() < 0.4:
            prompt = [rng.choice((3, 5))] * rng.randrange(1, 70)
            make = decode_leg if rng.random() < 0.6 else make_request
            request = make(f"r{number}", prompt, n=rng.choice((1, 1, 2)), max_tokens=rng.randrange(1, 9))
            requests[request.request_id] = request
            core.add_request(request)
        waiting += core.grant_pages()
        if waiting and rng.random() < 0.5:
            reservation = waiting.pop(rng.randrange(len(waiting)))
            request = requests[reservation.transfer_id.removeprefix("t-")]
            if rng.random() < 0.7:
                receive(core, reservation, request)
            else:
                num_tokens = rng.randrange(len(request.prompt_token_ids) + 1)
                write_pages(core, reservation, request, num_tokens)
                tokens = first_tokens(core, request) if rng.random() < 0.5 else {}
                core.end_pages(reservation.transfer_id, num_tokens, tokens, False)
        if requests and rng.random() < 0.05:
            aborted.add(rng.choice(sorted(requests)))
            core.abort_request(max(aborted))
        for e in core.step():
            seen = got.setdefault((e.request_id, e.sequence), {})
            seen |= {e.index_from + i: t for i, t in enumerate(e.token_ids)}
            if e.finish_reason:
                ended.add((e.request_id, e.sequence))
        core.check_integrity()
    assert not core.has_unfinished_requests()
    assert core.stats().num_free_blocks == spec.num_blocks
    for (request_id, index), seen in got.items():
        expected = oracle(requests[request_id], index, spec)
        assert all(expected[i] == token for i, token in seen.items())
    assert ended == {(r, s.index) for r, request in requests.items() for s in request.sequences}
