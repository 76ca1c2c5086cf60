"""Placement: filters, policies, ledger, membership."""

from __future__ import annotations

import collections
import random

import msgspec
import pytest

from octavo.errors import InvalidInput, ModelNotFound, TooLong, Unavailable
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.kv.record import WorkerRecord
from octavo.router.fleet import Fleet
from octavo.router.ledger import GRACE_S, Ledger
from octavo.router.policy import POLICIES, Candidate, make_policy
from octavo.router.service import RouterService
from octavo.rpc.placement import PlaceRequest, ProbeResult
from octavo.wire.message import EngineStats, LoadReport


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def record(worker_id: str, **changes: object) -> WorkerRecord:
    base = WorkerRecord(
        worker_id=worker_id,
        incarnation=f"{worker_id}-1",
        role="both",
        model="m",
        served_names=("m", "alias"),
        content_id="c",
        model_revision="r",
        layout=KVLayout(16, 1, 1, "float32", (GroupSpec(0, "full", (0,)),)),
        numerics="x",
        algorithms=(),
        max_sequence_tokens=100,
        vocab_size=10,
        num_blocks=8,
        max_num_seqs=4,
        device="cpu",
        grpc_address=f"{worker_id}:1",
        load_address=f"tcp://{worker_id}:2",
    )
    return msgspec.structs.replace(base, **changes)


def ask(request_id: str = "r", attempt: int = 1, **changes: object) -> PlaceRequest:
    base = PlaceRequest(
        request_id=request_id, attempt=attempt, gateway_incarnation="g", model="m", num_prompt_tokens=10, max_tokens=10
    )
    return msgspec.structs.replace(base, **changes)


def report(
    worker_id: str, sequence: int, live: list[tuple[str, int]], is_ready: bool = True, **stats: int
) -> LoadReport:
    return LoadReport(worker_id, f"{worker_id}-1", sequence, is_ready, EngineStats(**stats), live)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> RouterService:
    return RouterService(make_policy("least_loaded"), 5.0, rng=random.Random(0), clock=clock)


async def place(service: RouterService, **changes: object) -> str:
    answer = await service.place(ask(**changes))
    service.fleet_view.check_integrity()
    return answer.decode.worker.worker_id


async def test_no_worker_is_unavailable(service: RouterService):
    with pytest.raises(Unavailable):
        await service.place(ask())


async def test_an_unknown_model_names_what_is_served(service: RouterService):
    await service.register(record("a"))
    with pytest.raises(ModelNotFound, match="alias, m"):
        await service.place(ask(model="other"))


async def test_a_model_whose_workers_left_is_unavailable_not_unknown(service: RouterService):
    await service.register(record("a"))
    await service.register(record("b", model="n", served_names=("n",)))
    await service.deregister("a", "a-1")
    with pytest.raises(Unavailable):
        await service.place(ask())


async def test_a_served_name_finds_the_model(service: RouterService):
    await service.register(record("a"))
    assert await place(service, model="alias") == "a"


async def test_too_long_only_when_no_worker_can_hold_it(service: RouterService):
    await service.register(record("a", max_sequence_tokens=50))
    await service.register(record("b", max_sequence_tokens=200))
    assert await place(service, num_prompt_tokens=100, max_tokens=100) == "b"
    with pytest.raises(TooLong, match="at most 100") as caught:
        await service.place(ask(num_prompt_tokens=100, max_tokens=101))
    assert caught.value.param == "max_tokens"
    with pytest.raises(TooLong) as caught:
        await service.place(ask(num_prompt_tokens=200, max_tokens=0))
    assert caught.value.param == "prompt"


async def test_a_worker_that_could_hold_it_but_is_not_ready_is_unavailable(service: RouterService):
    await service.register(record("a"))
    await service.heartbeat("a", "a-1", False)
    with pytest.raises(Unavailable):
        await service.place(ask())


@pytest.mark.parametrize("changes", [{"exclude": ("a",)}, {"numerics": "other"}], ids=["excluded", "other numerics"])
async def test_filters(service: RouterService, changes: dict[str, object]):
    await service.register(record("a"))
    with pytest.raises(Unavailable):
        await service.place(ask(**changes))


async def test_an_unknown_task_is_refused(service: RouterService):
    await service.register(record("a"))
    with pytest.raises(InvalidInput, match="pool"):
        await service.place(ask(task="pool"))


async def test_a_worker_of_a_future_protocol_is_not_chosen(service: RouterService):
    await service.register(record("a", protocol_min=9, protocol_max=9))
    with pytest.raises(Unavailable):
        await service.place(ask())


async def test_choices_count_before_any_report(service: RouterService):
    for worker_id in "ab":
        await service.register(record(worker_id))
    chosen = [await place(service, request_id=f"r{i}") for i in range(6)]
    assert collections.Counter(chosen) == {"a": 3, "b": 3}


async def test_ties_are_broken_by_the_rng(clock: Clock):
    firsts = set()
    for seed in range(20):
        service = RouterService(make_policy("least_loaded"), 5.0, rng=random.Random(seed), clock=clock)
        for worker_id in "abc":
            await service.register(record(worker_id))
        firsts.add(await place(service))
    assert firsts == {"a", "b", "c"}


async def test_reported_load_of_other_routers_counts(service: RouterService):
    for worker_id in "ab":
        await service.register(record(worker_id))
    service.on_report(report("a", 1, [("x", 1), ("y", 1)], num_running=2))
    assert await place(service) == "b"


async def test_spares_are_the_other_workers(service: RouterService):
    for worker_id in "abc":
        await service.register(record(worker_id))
    answer = await service.place(ask())
    ids = {answer.decode.worker.worker_id, *(leg.worker.worker_id for leg in answer.spares)}
    assert (ids, answer.path, answer.policy) == ({"a", "b", "c"}, "local", "least_loaded")


async def test_round_robin_takes_turns(clock: Clock):
    service = RouterService(make_policy("round_robin"), 5.0, clock=clock)
    for worker_id in "cab":
        await service.register(record(worker_id))
    assert [await place(service, request_id=str(i)) for i in range(4)] == ["a", "b", "c", "a"]


def test_an_unknown_policy_lists_what_there_is():
    with pytest.raises(InvalidInput, match="least_loaded"):
        make_policy("best")


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_ranks_all_candidates_once(name: str):
    candidates = [Candidate(record(w), i) for i, w in enumerate("abc")]
    ranked = make_policy(name).rank(ask(), candidates, random.Random(0))
    assert sorted(c.candidate.record.worker_id for c in ranked) == ["a", "b", "c"]


# --- ledger ---


async def test_a_report_of_a_stopped_engine_counts_before_its_next_heartbeat(service: RouterService, clock: Clock):
    await service.register(record("a"))
    clock.now_s += 0.3
    service.on_report(report("a", 1, [], is_ready=False))
    (member,) = service.fleet_view.members(clock.now_s)
    assert (member.is_ready, member.heartbeat_age_s) == (False, pytest.approx(0.3))
    with pytest.raises(Unavailable):
        await service.place(ask())
    service.on_report(report("a", 2, []))
    assert await place(service) == "a"


def test_an_entry_ends_when_a_report_no_longer_names_it():
    ledger = Ledger()
    ledger.enter(("g", "r", 1), "a", 10, 0.0)
    ledger.reconcile("a", [], 0.1)
    assert ledger.num_in_flight("a") == 1, "not yet reported"
    ledger.reconcile("a", [("r", 1)], 0.2)
    assert (ledger.num_in_flight("a"), ledger.num_tokens("a")) == (1, 0)
    ledger.reconcile("a", [], 0.3)
    assert ledger.num_in_flight("a") == 0
    ledger.check_integrity()


def test_an_entry_that_never_shows_ends_after_the_grace():
    ledger = Ledger()
    ledger.enter(("g", "r", 1), "a", 10, 0.0)
    ledger.reconcile("a", [], GRACE_S + 0.1)
    assert ledger.num_in_flight("a") == 0


def test_a_new_attempt_moves_the_request():
    ledger = Ledger()
    ledger.enter(("g", "r", 1), "a", 10, 0.0)
    ledger.enter(("g", "r", 2), "b", 10, 0.1)
    assert (ledger.num_in_flight("a"), ledger.num_in_flight("b")) == (0, 1)
    ledger.check_integrity()


def test_dropping_a_worker_empties_it():
    ledger = Ledger()
    ledger.enter(("g", "r", 1), "a", 10, 0.0)
    ledger.reconcile("a", [("other", 1)], 0.1)
    ledger.drop_worker("a")
    assert ledger.num_in_flight("a") == 0
    ledger.check_integrity()


# --- membership ---


def test_a_fresh_router_asks_for_the_record():
    fleet = Fleet()
    assert fleet.heartbeat("a", "a-1", True, 0.0)
    fleet.join(record("a"), 0.0)
    assert not fleet.heartbeat("a", "a-1", True, 0.5)
    assert fleet.heartbeat("a", "a-2", True, 0.6), "another incarnation is unknown"


def test_a_new_incarnation_voids_the_old_one():
    fleet = Fleet()
    fleet.join(record("a"), 0.0)
    fleet.ledger.enter(("g", "r", 1), "a", 10, 0.0)
    fleet.join(record("a", incarnation="a-2"), 1.0)
    assert fleet.ledger.num_in_flight("a") == 0
    assert not fleet.report(report("a", 1, [("r", 1)]), 1.1), "a report of the old incarnation"
    fleet.leave("a", "a-1")
    assert [m.record.incarnation for m in fleet.members(2.0)] == ["a-2"]


def test_old_reports_are_ignored():
    fleet = Fleet()
    fleet.join(record("a"), 0.0)
    assert fleet.report(report("a", 2, []), 0.1)
    assert not fleet.report(report("a", 1, [("r", 1)]), 0.2)


@pytest.mark.parametrize(("answers", "left"), [(True, 1), (False, 0)], ids=["probe answers", "probe fails"])
async def test_a_worker_is_dead_only_when_heartbeat_and_probe_fail(clock: Clock, answers: bool, left: int):
    async def probe(address: str) -> ProbeResult:
        if not answers:
            raise Unavailable(f"{address}: connection refused")
        return ProbeResult("a-1", True, 0.1)

    service = RouterService(make_policy("least_loaded"), 5.0, probe=probe, clock=clock)
    await service.register(record("a"))
    clock.now_s += 4.9
    await service.check_overdue()
    assert len((await service.fleet()).members) == 1, "not late yet"
    clock.now_s += 0.2
    await service.check_overdue()
    assert len((await service.fleet()).members) == left
