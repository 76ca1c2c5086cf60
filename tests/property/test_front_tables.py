"""The front's request table and the router's ledger under random operations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import OctavoError
from octavo.request import Emission, Request, SequenceInput
from octavo.router.ledger import Ledger
from octavo.sampling_params import SamplingParams
from octavo.worker.request_table import RequestTable

IDS = st.sampled_from(["a", "b", "c"])
ATTEMPTS = st.integers(1, 3)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["submit", "token", "end", "abort", "abort one", "attach", "sweep"]), IDS, ATTEMPTS, IDS),
    max_size=60,
)


@given(OPERATIONS)
def test_the_table_is_whole_and_fences_attempts(operations: list[tuple[str, str, int, str]]):
    table, highest = RequestTable(), dict[str, int]()
    for now_s, (what, request_id, attempt, session_id) in enumerate(operations):
        if what == "submit" and not table.knows(request_id, attempt):
            inputs = [SequenceInput(0), SequenceInput(1)]
            request = Request(request_id, attempt, [1], SamplingParams(seed=1, n=2), inputs)
            try:
                table.admit(request, session_id, now_s)
            except OctavoError:
                pass
            else:
                assert attempt > highest.get(request_id, 0), "an older attempt was let in"
                highest[request_id] = attempt
        elif what in ("token", "end"):
            live = table.get_live(request_id, attempt)
            index = 0 if live is None else live.outputs[0].num_output_tokens
            finish = "stop" if what == "end" else None
            table.record(Emission(request_id, attempt, 0, index, [index], finish_reason=finish), now_s)
        elif what.startswith("abort"):
            table.abort(request_id, attempt, (1,) if what == "abort one" else (), now_s)
            assert what == "abort one" or table.get_live(request_id, attempt) is None
        elif what == "attach" and table.knows(request_id, attempt):
            table.attach(request_id, attempt, session_id)
            assert table.belongs(request_id, attempt, session_id)
        elif what == "sweep":
            table.sweep(now_s)
        table.check_integrity()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.data())
def test_a_replay_from_any_index_brings_the_rest(chunks: list[int], data: st.DataObject):
    table = RequestTable()
    table.admit(Request("r", 1, [1], SamplingParams(seed=1), [SequenceInput(0)]), "s", 0.0)
    tokens: list[int] = []
    for size in chunks:
        new = list(range(len(tokens), len(tokens) + size))
        table.record(Emission("r", 1, 0, len(tokens), new), 0.0)
        tokens += new
    index = data.draw(st.integers(0, len(tokens)))
    again = [t for e in table.replay("r", 1, {0: index}) for t in e.token_ids]
    assert again == tokens[index:]


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "report", "drop"]), IDS, ATTEMPTS, st.sampled_from(["w1", "w2"])),
        max_size=60,
    )
)
def test_the_ledger_is_whole_and_empties(operations: list[tuple[str, str, int, str]]):
    ledger = Ledger()
    for now_s, (what, request_id, attempt, worker_id) in enumerate(operations):
        if what == "enter":
            ledger.enter(("g", request_id, attempt), worker_id, 1, now_s)
            assert ledger.num_in_flight(worker_id) >= 1
        elif what == "report":
            ledger.reconcile(worker_id, [(request_id, attempt)], now_s)
        else:
            ledger.drop_worker(worker_id)
            assert ledger.num_in_flight(worker_id) == 0
        ledger.check_integrity()
    for worker_id in ("w1", "w2"):
        ledger.reconcile(worker_id, [], len(operations) + 10.0)
        assert ledger.num_in_flight(worker_id) == 0
