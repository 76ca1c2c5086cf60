"""The transfer machine under thousands of random schedules, and five planted bugs that the same harness must find.

`OCTAVO_SCHEDULES` sets how many schedules run, `OCTAVO_SEED` where they start.  A failure prints its seed and the
shortest part of its schedule that still fails.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from octavo.errors import InternalError
from octavo.transfer.machine.action import Action, Commit, Send
from octavo.transfer.machine.consumer import Consumer
from octavo.transfer.machine.noun import ConsumerState, Incoming, Outgoing, ProducerState, Pull, Reason
from octavo.transfer.machine.producer import Producer
from octavo.transfer.message import ProducerEnd
from transfer_node import Violation
from transfer_world import World, run_schedule

NUM_SCHEDULES = int(os.environ.get("OCTAVO_SCHEDULES", "2000"))
FIRST_SEED = int(os.environ.get("OCTAVO_SEED", "0"))
NUM_PARTS = 4
LIMIT_S = 60.0
SHRINK_S = 5.0


def schedule_of(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(48) for _ in range(rng.choice((60, 200, 400)))]


def failure_of(seed: int, schedule: list[int], has_faults: bool = True, **classes: type) -> Exception | None:
    try:
        run_schedule(World(seed, has_faults=has_faults, **classes), schedule)
    except (Violation, InternalError) as error:
        return error
    return None


def shrink(seed: int, schedule: list[int], **classes: type) -> list[int]:
    """A part of a failing schedule that still fails and from which hardly anything can be left out."""
    end_s = time.monotonic() + SHRINK_S
    size = len(schedule) // 2
    while size and time.monotonic() < end_s:
        start = 0
        while start < len(schedule) and time.monotonic() < end_s:
            shorter = schedule[:start] + schedule[start + size :]
            if failure_of(seed, shorter, **classes):
                schedule = shorter
            else:
                start += size
        size //= 2
    return schedule


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_no_schedule_breaks_a_rule(part: int) -> None:
    for seed in range(FIRST_SEED + part, FIRST_SEED + NUM_SCHEDULES, NUM_PARTS):
        error = failure_of(seed, schedule_of(seed))
        if error is not None:
            pytest.fail(f"seed {seed}: {error}; shortest schedule: {shrink(seed, schedule_of(seed))}")


def test_schedules_reach_every_state_and_failure() -> None:
    """A harness that never gets anywhere finds nothing: these schedules see all that the rules are about."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        world = World(seed)
        run_schedule(world, schedule_of(seed))
        seen.update(outcome for outcomes in world.outcomes.values() for outcome in outcomes)
        nodes = [*world.nodes.values(), *world.graveyard.values()]
        for counters in [c for n in nodes for c in (n.producer.counters, n.consumer.counters)]:
            seen.update({f"failed:{reason}": count for reason, count in counters.failures.items()})
            names = [f for f in counters.__struct_fields__ if f != "failures"]
            seen.update({name: getattr(counters, name) for name in names})
    wanted = ["commit", "give_up", "num_parked", "num_expired", "num_late", "num_restarts", "num_quarantines"]
    never = (Reason.INCOMPATIBLE, Reason.NO_SPACE)
    wanted += ["num_refused_reads", *(f"failed:{r.value}" for r in Reason if r not in never)]
    assert [name for name in wanted if not seen[name]] == []


def test_without_faults_every_reserved_transfer_is_committed() -> None:
    for seed in range(100):
        world = World(seed, has_faults=False)
        run_schedule(world, schedule_of(seed))
        possible = world.has_room & world.is_prompt
        assert (seed, [t for t in possible if world.outcomes[t] != ["commit"]]) == (seed, [])
        assert world.nodes["c"].consumer.counters.num_bad_pages == 0


# --- planted bugs ------------------------------------------------------------------------------------------------


class NoEpochReread(Consumer):
    """Takes a page without looking whether the producer has used its memory for something else since."""

    def _is_current(self, pull: Pull, epoch: int) -> bool:
        return True


class TakesOldReplies(Consumer):
    """Writes whatever bytes come, also those of a pull that is over."""

    def accepts(self, pull_id: int, read: int) -> bool:
        return True


class ReleasesWhileRead(Producer):
    """Frees blocks while a local thread still reads them."""

    def _may_free(self, transfer: Outgoing) -> bool:
        return True

    def end_read(self, transfer_id: str, now_s: float) -> list[Action]:
        return super().end_read(transfer_id, now_s) if self.ledger.get(transfer_id) else []

    def check_integrity(self) -> None:
        return


class LeavesWhileCopying(Consumer):
    """Frees blocks while a copy of ours still writes them."""

    def _may_leave(self, pull: Pull) -> bool:
        return True


class PublishesBeforeVerify(Consumer):
    """Commits when every page was ordered instead of when every page was verified."""

    def _advance(self, transfer: Incoming, pull: Pull, now_s: float) -> list[Action]:
        out = super()._advance(transfer, pull, now_s)
        if transfer.state is ConsumerState.PULLING and pull.has_end and pull.reads and not pull.queue:
            transfer.state, transfer.has_holds = ConsumerState.COMMITTED, False
            out.append(Commit(transfer.transfer_id, transfer.num_tokens, b""))
        return out


class NoTerminalMessage(Producer):
    """Ends a failed transfer without telling the consumer."""

    def _end(self, transfer: Outgoing, ending: ProducerState, reason: Reason, now_s: float) -> list[Action]:
        actions = super()._end(transfer, ending, reason, now_s)
        return [a for a in actions if not (isinstance(a, Send) and isinstance(a.message, ProducerEnd))]


PLANTED = [
    NoEpochReread,
    TakesOldReplies,
    ReleasesWhileRead,
    LeavesWhileCopying,
    PublishesBeforeVerify,
    NoTerminalMessage,
]


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type) -> None:
    classes = {"producer_class" if issubclass(bug, Producer) else "consumer_class": bug}
    start_s = time.monotonic()
    for seed in range(100_000):
        error = failure_of(seed, schedule_of(seed), **classes)
        took_s = time.monotonic() - start_s
        assert took_s < LIMIT_S, f"not found in {seed + 1} schedules"
        if error is not None:
            shortest = shrink(seed, schedule_of(seed), **classes)
            print(f"{bug.__name__}: seed {seed}, {took_s:.2f} s, {len(shortest)} steps: {error}")
            assert failure_of(seed, shortest, **classes)
            assert failure_of(seed, shortest) is None
            return
