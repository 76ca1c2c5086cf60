"""The order of waiting sequences."""

from __future__ import annotations

from itertools import product

import pytest

from engine_kit import make_request
from octavo.engine.sequence import LiveRequest, Sequence, Status
from octavo.engine.waiting import AGING_STEPS, POLICIES, Fcfs, Priority, WaitingQueue
from octavo.request import SequenceInput


def make_sequence(arrival: int, priority: int = 0, step: int = 0, outputs: tuple[int, ...] = ()) -> Sequence:
    live = LiveRequest(make_request(str(arrival), [1, 2], priority=priority), b"", arrival, step)
    return Sequence.of(live, SequenceInput(0, list(outputs)), 1, 10)


def test_fcfs_is_the_order_of_arrival() -> None:
    queue = WaitingQueue(Fcfs())
    sequences = [make_sequence(i) for i in range(3)]
    for sequence in reversed(sequences):
        queue.push(sequence)
    assert list(queue) == sequences


def test_resumed_and_preempted_come_before_new() -> None:
    queue = WaitingQueue(Fcfs())
    new, resumed, preempted = make_sequence(0), make_sequence(1, outputs=(5,)), make_sequence(2)
    preempted.status = Status.PREEMPTED
    for sequence in (new, resumed, preempted):
        queue.push(sequence)
    assert list(queue) == [resumed, preempted, new]


def test_age_is_worth_priority() -> None:
    queue = WaitingQueue(Priority())
    old, important = make_sequence(0, priority=1), make_sequence(1, priority=0, step=AGING_STEPS + 1)
    queue.push(important)
    queue.push(old)
    assert list(queue) == [old, important]


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_displaced_is_behind_in_the_queue(name: str) -> None:
    # else the two would take each other's place for ever
    policy = POLICIES[name]()
    for p, q, step, outputs in product(range(3), range(3), (0, 5, 300), ((), (7,))):
        sequence, other = make_sequence(1, p, step), make_sequence(0, q, 0, outputs)
        may_displace = policy.has_precedence(sequence, other)
        other.status = Status.PREEMPTED
        assert not may_displace or policy.key(sequence) < policy.key(other)


def test_removing_what_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="not waiting"):
        WaitingQueue(Fcfs()).remove(make_sequence(0))
