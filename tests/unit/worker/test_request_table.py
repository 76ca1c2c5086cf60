"""The front's tables of requests and sessions."""

from __future__ import annotations

import pytest

from octavo.errors import Aborted, InvalidInput, StaleAttempt
from octavo.request import Emission, Request, SequenceInput, TokenLogprobs
from octavo.sampling_params import SamplingParams
from octavo.worker.request_table import RETAIN_S, RequestTable
from octavo.worker.session_table import SessionTable


def request(request_id: str = "r", attempt: int = 1, outputs: tuple[list[int], ...] = ([],)) -> Request:
    inputs = [SequenceInput(i, ids) for i, ids in enumerate(outputs)]
    return Request(request_id, attempt, [1, 2], SamplingParams(seed=1, n=len(inputs)), inputs)


def emission(index: int, ids: list[int], finish: str | None = None, sequence: int = 0, attempt: int = 1) -> Emission:
    return Emission("r", attempt, sequence, index, ids, finish_reason=finish, num_cached_tokens=0 if not index else -1)


@pytest.fixture
def table():
    table = RequestTable()
    yield table
    table.check_integrity()


def test_an_attempt_is_known_while_live_and_retained(table: RequestTable):
    table.admit(request(), "s", 0.0)
    assert table.knows("r", 1)
    assert not table.knows("r", 2)
    table.record(emission(0, [5], finish="stop"), 0.1)
    assert table.knows("r", 1)


def test_a_stale_attempt_is_refused(table: RequestTable):
    table.admit(request(attempt=2), "s", 0.0)
    with pytest.raises(StaleAttempt):
        table.admit(request(attempt=1), "s", 0.1)


def test_a_higher_attempt_replaces_the_live_one(table: RequestTable):
    table.admit(request(), "s", 0.0)
    _, old = table.admit(request(attempt=2), "s", 0.1)
    assert old is not None
    assert old.attempt == 1
    assert table.record(emission(0, [5]), 0.2) is None, "an emission of the old attempt"
    assert table.live_keys() == [("r", 2)]


def test_abort_before_submit(table: RequestTable):
    assert table.abort("r", 1, (), 0.0) is None
    with pytest.raises(Aborted):
        table.admit(request(), "s", 0.1)
    assert table.admit(request(attempt=2), "s", 0.2)[0], "a later attempt may come"


def test_a_tombstone_is_forgotten(table: RequestTable):
    table.abort("r", 1, (), 0.0)
    table.sweep(RETAIN_S + 0.1)
    assert table.admit(request(), "s", RETAIN_S + 0.2)[0]


def test_replay_rebuilds_what_was_put_out(table: RequestTable):
    table.admit(request(), "s", 0.0)
    table.record(emission(0, [5]), 0.1)
    table.record(emission(1, [6, 7]), 0.2)
    assert [e.token_ids for e in table.replay("r", 1, {0: 1})] == [[6, 7]]
    assert table.replay("r", 1, {0: 3}) == []
    table.record(emission(3, [8], finish="stop"), 0.3)
    (again,) = table.replay("r", 1, {0: 2})
    assert (again.index_from, again.token_ids, again.finish_reason) == (2, [7, 8], "stop")
    (tail,) = table.replay("r", 1, {0: 4})
    assert (tail.index_from, tail.token_ids, tail.finish_reason) == (4, [], "stop")


def test_replay_of_a_resumed_request_starts_at_its_own_first_index(table: RequestTable):
    table.admit(request(outputs=([9, 9, 9],)), "s", 0.0)
    table.record(emission(3, [5]), 0.1)
    (again,) = table.replay("r", 1, {0: 0})
    assert (again.index_from, again.token_ids) == (3, [5])


def test_replay_keeps_logprobs(table: RequestTable):
    table.admit(request(), "s", 0.0)
    for index in range(3):
        step = emission(index, [index])
        step.logprobs = [TokenLogprobs(-float(index), 1)]
        table.record(step, 0.1)
    (again,) = table.replay("r", 1, {0: 1})
    assert again.logprobs is not None
    assert [p.logprob for p in again.logprobs] == [-1.0, -2.0]


def test_aborting_one_sequence_keeps_the_other(table: RequestTable):
    table.admit(request(outputs=([], [])), "s", 0.0)
    assert table.abort("r", 1, (1,), 0.1) is not None
    assert table.record(emission(0, [5], sequence=1), 0.2) is None
    assert table.record(emission(0, [5], sequence=0), 0.2) is not None
    table.record(emission(1, [6], finish="stop"), 0.3)
    assert (table.num_live, table.num_retained) == (0, 1)


def test_ended_requests_are_retained_for_a_minute(table: RequestTable):
    table.admit(request(), "s", 0.0)
    table.record(emission(0, [5], finish="stop"), 1.0)
    table.sweep(60.9)
    assert table.num_retained == 1
    table.sweep(61.1)
    assert table.num_retained == 0


def test_only_the_newest_ended_requests_are_retained(table: RequestTable, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("octavo.worker.request_table.MAX_RETAINED", 2)
    for number in range(4):
        table.admit(request(f"r{number}"), "s", 0.0)
        table.abort(f"r{number}", 1, (), float(number))
    table.sweep(4.0)
    assert [table.knows(f"r{n}", 1) for n in range(4)] == [False, False, True, True]


def test_a_tombstone_keeps_the_highest_attempt(table: RequestTable):
    table.abort("r", 3, (), 0.0)
    table.abort("r", 1, (), 0.1)
    with pytest.raises(Aborted):
        table.admit(request(attempt=2), "s", 0.2)


def test_silent_requests_and_recently_ended_ones_are_named(table: RequestTable):
    table.admit(request(), "s", 0.0)
    assert table.silent("s", 0.9) == ()
    (state,) = table.silent("s", 1.1)
    assert (state.state, state.sent) == ("queued", {0: 0})
    table.record(emission(0, [5], finish="stop"), 2.0)
    assert table.silent("s", 2.5) == ()
    (state,) = table.silent("s", 3.1)
    assert (state.state, state.sent) == ("ended", {0: 1})
    assert table.silent("s", 8.0) == ()


def test_pausing_has_two_reasons(table: RequestTable):
    table.admit(request(), "s", 0.0)
    (work,) = table.live()
    assert table.pause(work, True) is True
    work.is_paused_by_client = True
    assert table.pause(work, True) is None
    assert table.pause(work, False) is None, "the client still does not read"
    work.is_paused_by_client = False
    assert table.pause(work, False) is False


def test_attach_moves_a_request_to_another_session(table: RequestTable):
    table.admit(request(), "s", 0.0)
    table.attach("r", 1, "s2")
    assert [w.request_id for w in table.of_session("s2")] == ["r"]
    with pytest.raises(StaleAttempt):
        table.attach("r", 2, "s2")
    with pytest.raises(InvalidInput):
        table.attach("unknown", 1, "s2")


class NoStream:
    def send(self, message: object) -> None: ...

    def close(self) -> None: ...


def test_a_session_lives_until_its_lease_ends():
    sessions = SessionTable(10.0)
    session = sessions.open("g", "i", NoStream(), 0.0)
    assert sessions.by_token(session.token) is session
    sessions.heard(session, 5.0)
    sessions.disconnect(session)
    assert sessions.expire(15.0) == []
    assert sessions.expire(15.1) == [session]
    assert sessions.by_token(session.token) is None
    sessions.check_integrity()
