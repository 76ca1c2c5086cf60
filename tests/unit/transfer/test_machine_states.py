"""Producer and consumer, state by state."""

from __future__ import annotations

import msgspec
import pytest

from octavo.errors import InternalError
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.transfer.machine.action import Action, Begin, Cancel, Commit, Free, GiveUp, Lookup, Read, Send, StopReads
from octavo.transfer.machine.consumer import Consumer
from octavo.transfer.machine.noun import ConsumerState, Incoming, Limits, ProducerState, Reason, Source
from octavo.transfer.machine.producer import Producer
from octavo.transfer.message import ConsumerEnd, EndAck, Hello, Page, Probe, ProducerEnd, Renew, Shard, Status, Terms

LAYOUT = KVLayout(16, 2, 4, "float32", (GroupSpec(0, "full", (0,)),))
P = Terms("p", "p.0", "weights", LAYOUT, (Shard(0, 0, 1, 0, 2, 8),))
Q = msgspec.structs.replace(P, worker_id="q", incarnation="q.0")
C = msgspec.structs.replace(P, worker_id="c", incarnation="c.0")
FROM_P = Source("p", "p.0", "shm")
FROM_Q = Source("q", "q.0", "tcp", is_request=False)
DIGEST = b"8 bytes."
PAGES = [Page(0, i, i + 3, DIGEST) for i in range(2)]


def sent(actions: list[Action]) -> list[object]:
    return [a.message for a in actions if isinstance(a, Send)]


def of(actions: list[Action], kind: type) -> list:
    return [a for a in actions if isinstance(a, kind)]


def hello(pull_id: int = 1, terms: Terms = C, transfer_id: str = "t", **fields: object) -> Hello:
    return Hello(transfer_id, pull_id, terms, **fields)  # type: ignore[arg-type]


def end_of(outcome: str = "acked", pull_id: int = 1) -> ConsumerEnd:
    return ConsumerEnd("t", pull_id, "c", "c.0", outcome)


def producer(num_pages: int = 0) -> Producer:
    p = Producer(P)
    p.reserve("t", ("r", 1), 0.0)
    if num_pages:
        p.fill("t", PAGES[:num_pages], 0.0)
    return p


def consumer(*sources: Source, num_tokens: int = 32, **fields: object) -> Consumer:
    c = Consumer(C)
    transfer = Incoming("t", ("r", 1), 0.0, num_tokens=num_tokens, **fields)  # type: ignore[arg-type]
    c.open(transfer, sources or (FROM_P,))
    return c


def status(pages: list[Page], *, first: int = 0, pull_id: int = 1, terms: Terms = P, epoch: int = 5) -> Status:
    return Status("t", pull_id, terms, "filling", epoch, 0, first, pages)


def ready(pull_id: int = 1, num_tokens: int = 32, num_pages: int = 2, incarnation: str = "p.0") -> ProducerEnd:
    return ProducerEnd("t", pull_id, incarnation, "ready", "", num_tokens, num_pages, b"token 0")


def pulling(*sources: Source, **fields: object) -> tuple[Consumer, list[Read]]:
    c = consumer(*sources, **fields)  # type: ignore[arg-type]
    c.allocated("t", 0.0)
    return c, of(c.receive(status(PAGES), 0.0), Read)


class TestProducer:
    def test_a_hello_before_its_transfer_parks_and_then_counts(self) -> None:
        p = Producer(P)
        assert p.receive(hello(), 0.0) == []
        actions = p.reserve("t", ("r", 1), 4.9)
        assert of(actions, Begin) == [Begin("t")]
        assert [m.state for m in sent(actions)] == ["reserved"]

    def test_a_parked_hello_is_refused_after_5_s_and_its_transfer_never_starts(self) -> None:
        p = Producer(P)
        p.receive(hello(), 0.0)
        assert sent(p.tick(4.9)) == []
        assert [m.state for m in sent(p.tick(5.0))] == ["unknown"]
        assert p.reserve("t", ("r", 1), 6.0) == [Cancel("t", Reason.CANCELLED), Free("t")]

    def test_pages_within_the_consumers_prefix_are_not_announced(self) -> None:
        p = producer(2)
        assert sent(p.receive(hello(have_tokens=16), 0.0))[0].pages == PAGES[1:]

    def test_the_lease_starts_when_ready_is_renewed_and_ends(self) -> None:
        p = producer(2)
        p.receive(hello(), 0.0)
        assert [m.outcome for m in sent(p.finish("t", 32, b"x", 10.0))] == ["ready"]
        p.receive(Renew("t", 1, "c", "c.0", 2), 35.0)
        assert p.tick(60.0) == []
        actions = p.tick(65.0)
        assert of(actions, Free) == [Free("t")]
        assert [m.state for m in sent(actions)] == ["expired"]
        assert p.counters.num_expired == 1

    def test_an_end_with_a_reader_fences_until_the_read_is_over(self) -> None:
        p = producer(1)
        p.receive(hello(), 0.0)
        epoch = p.ledger.get("t").epoch
        assert p.begin_read("t", 1, epoch)
        assert of(p.fail("t", Reason.CANCELLED, 0.0), Free) == []
        assert p.ledger.get("t").state is ProducerState.FENCING
        assert not p.begin_read("t", 1, epoch)
        p.check_integrity()
        assert p.end_read("t", 0.0) == [Free("t")]
        p.check_integrity()

    def test_reads_of_another_pull_or_epoch_are_refused(self) -> None:
        p = producer(1)
        p.receive(hello(pull_id=2), 0.0)
        epoch = p.ledger.get("t").epoch
        assert [p.begin_read("t", 1, epoch), p.begin_read("t", 2, epoch + 1), p.begin_read("t", 2, epoch)] == [
            False,
            False,
            True,
        ]
        assert p.counters.num_refused_reads == 2

    def test_the_consumers_end_releases_and_is_acknowledged_again_and_again(self) -> None:
        p = producer(2)
        p.receive(hello(), 0.0)
        p.finish("t", 32, b"", 0.0)
        actions = p.receive(end_of(), 1.0)
        assert of(actions, Free) == [Free("t")]
        assert sent(actions) == [EndAck("t", "p.0")]
        assert p.receive(end_of(), 2.0) == [Send("c", EndAck("t", "p.0"))]
        assert p.counters.num_released == 1

    def test_a_consumer_that_gives_up_early_cancels_the_request(self) -> None:
        p = producer(1)
        p.receive(hello(), 0.0)
        actions = p.receive(end_of("failed"), 1.0)
        assert of(actions, Cancel) == [Cancel("t", Reason.CANCELLED)]
        assert [type(m).__name__ for m in sent(actions)] == ["ProducerEnd", "EndAck"]

    def test_an_end_before_the_transfer_leaves_a_tombstone(self) -> None:
        p = Producer(P)
        p.receive(end_of("failed"), 0.0)
        assert of(p.reserve("t", ("r", 1), 1.0), Cancel) == [Cancel("t", Reason.CANCELLED)]

    def test_a_transfer_forgotten_for_long_makes_no_second_terminal_message(self) -> None:
        p = producer(2)
        p.receive(hello(), 0.0)
        p.finish("t", 32, b"", 0.0)
        p.fail("t", Reason.CANCELLED, 1.0)
        p.tick(62.0)
        assert p.receive(hello(pull_id=2), 62.0) == []
        assert sent(p.receive(end_of("failed", 2), 63.0)) == [EndAck("t", "p.0")]
        assert sent(p.tick(70.0)) == []

    def test_a_new_life_of_the_consumer_voids_what_the_old_one_wanted(self) -> None:
        p = producer(1)
        p.receive(hello(), 0.0)
        actions = p.receive(hello(transfer_id="u", terms=msgspec.structs.replace(C, incarnation="c.1")), 1.0)
        assert of(actions, Free) == [Free("t")]

    def test_an_incompatible_consumer_is_refused(self) -> None:
        p = producer(1)
        actions = p.receive(hello(terms=msgspec.structs.replace(C, content_id="other")), 0.0)
        assert [(m.outcome, m.reason) for m in sent(actions)] == [("failed", "incompatible")]
        assert of(actions, Free) == [Free("t")]

    def test_hashes_are_looked_up_once(self) -> None:
        p = Producer(P)
        assert of(p.receive(hello(hashes=[b"h"]), 0.0), Lookup) == [Lookup(hello(hashes=[b"h"]))]
        assert p.receive(hello(hashes=[b"h"]), 0.1) == []

    def test_no_slot_left_is_said(self) -> None:
        p = Producer(P, Limits(num_slots=1))
        p.reserve("t", ("r", 1), 0.0)
        assert p.reserve("u", ("s", 1), 0.0) == [Cancel("u", Reason.NO_SPACE), Free("u")]


class TestConsumer:
    def test_the_straight_way(self) -> None:
        c, reads = pulling()
        assert [r.order.page for r in reads] == PAGES
        assert c.receive(ready(), 0.1) == []
        for read in reads:
            actions = c.copied(1, read.order.read, DIGEST, 5, 0.2)
        assert actions == [Commit("t", 32, b"token 0")]
        assert [m.outcome for m in sent(c.committed("t", 0.3))] == ["acked"]
        assert c.num_unacked_endings == 1
        c.receive(EndAck("t", "p.0"), 0.4)
        assert (c.num_unacked_endings, len(c.ledger)) == (0, 0)
        c.check_integrity()

    def test_all_pages_without_the_terminal_message_is_verify(self) -> None:
        c, reads = pulling()
        for read in reads:
            c.copied(1, read.order.read, DIGEST, 5, 0.2)
        assert c.ledger.get("t").state is ConsumerState.VERIFY
        assert c.receive(ready(), 0.3) == [Commit("t", 32, b"token 0")]

    def test_another_epoch_after_the_copy_is_stale_and_blames_nobody(self) -> None:
        c, reads = pulling()
        actions = c.copied(1, reads[0].order.read, b"other...", 6, 0.2)
        assert actions == [StopReads(1)]
        assert c.counters.failures == {"stale": 1}
        assert c.counters.num_bad_pages == 0

    def test_holds_go_only_when_no_copy_runs(self) -> None:
        c, reads = pulling()
        assert c.cancel("t", Reason.CANCELLED, 0.1) == [StopReads(1)]
        assert not c.accepts(1, reads[0].order.read)
        assert c.read_failed(1, reads[0].order.read, Reason.CANCELLED, 0.2) == []
        actions = c.read_failed(1, reads[1].order.read, Reason.CANCELLED, 0.3)
        assert of(actions, GiveUp) == [GiveUp("t", Reason.CANCELLED, 0, None)]

    def test_a_bad_page_is_fetched_again_and_the_third_puts_the_sender_out(self) -> None:
        c, reads = pulling(FROM_P, FROM_Q)
        again = of(c.copied(1, reads[0].order.read, b"flipped.", 5, 0.1), Read)
        assert [r.order.page for r in again] == [PAGES[0]]
        again = of(c.copied(1, again[0].order.read, b"flipped.", 5, 0.2), Read)
        assert of(c.copied(1, again[0].order.read, b"flipped.", 5, 0.3), StopReads) == [StopReads(1)]
        actions = c.read_failed(1, reads[1].order.read, Reason.CANCELLED, 0.4)
        assert [(type(m).__name__, m.transfer_id) for m in sent(actions)] == [
            ("ConsumerEnd", "t"),
            ("Hello", "t/hashes"),
        ]
        assert c.quarantine.is_out(("p", "p.0"), 60.0)
        assert not c.quarantine.is_out(("p", "p.0"), 60.4)

    def test_what_was_verified_is_not_asked_for_again_elsewhere(self) -> None:
        c, reads = pulling(FROM_P, FROM_Q)
        c.copied(1, reads[0].order.read, DIGEST, 5, 0.1)
        actions = c.read_failed(1, reads[1].order.read, Reason.PEER_GONE, 0.2)
        assert [m.have_tokens for m in sent(actions) if isinstance(m, Hello)] == [16]

    def test_replies_of_an_old_pull_are_dropped_and_counted(self) -> None:
        c, reads = pulling(FROM_P, FROM_Q)
        for read in reads:
            c.read_failed(1, read.order.read, Reason.PEER_GONE, 0.1)
        assert not c.accepts(1, reads[0].order.read)
        assert c.copied(1, reads[0].order.read, DIGEST, 5, 0.2) == []
        assert c.receive(status(PAGES), 0.2) == []
        assert c.counters.num_late == 3

    def test_no_progress_and_a_failed_probe_go_to_the_next_source(self) -> None:
        c, reads = pulling(FROM_P, FROM_Q)
        assert [type(m) for m in sent(c.tick(1.0))] == [Probe]
        assert of(c.tick(1.5), StopReads) == [StopReads(1)]
        for read in reads:
            actions = c.read_failed(1, read.order.read, Reason.CANCELLED, 1.6)
        assert [m.transfer_id for m in sent(actions) if isinstance(m, Hello)] == ["t/hashes"]

    def test_a_restarted_producer_is_gone(self) -> None:
        c, _ = pulling()
        assert c.receive(ready(incarnation="p.1"), 0.1) == [StopReads(1)]
        assert c.counters.failures == {"peer_gone": 1}

    def test_no_source_left_gives_up_with_what_is_verified_and_the_payload(self) -> None:
        c, reads = pulling()
        c.receive(ready(), 0.0)
        c.copied(1, reads[0].order.read, DIGEST, 5, 0.1)
        actions = c.read_failed(1, reads[1].order.read, Reason.PEER_GONE, 0.2)
        assert of(actions, GiveUp) == [GiveUp("t", Reason.PEER_GONE, 16, b"token 0")]
        assert c.counters.num_recomputes == 1

    def test_a_partial_copy_commits_what_the_source_holds(self) -> None:
        c, reads = pulling(is_partial=True, num_tokens=48)
        c.receive(ready(num_tokens=32), 0.0)
        for read in reads:
            actions = c.copied(1, read.order.read, DIGEST, 5, 0.1)
        assert of(actions, Commit) == [Commit("t", 32, b"token 0")]

    def test_pages_ahead_of_a_gap_wait_until_they_are_told_again(self) -> None:
        c = consumer()
        c.allocated("t", 0.0)
        c.receive(status([]), 0.0)
        assert c.receive(status(PAGES[1:], first=1), 0.1) == []
        assert [r.order.page for r in of(c.receive(status(PAGES), 0.2), Read)] == PAGES

    def test_an_ending_is_sent_until_acknowledged(self) -> None:
        c, _ = pulling()
        assert [m.outcome for m in sent(c.cancel("t", Reason.CANCELLED, 0.0))] == []
        c2 = consumer()
        c2.allocated("t", 0.0)
        assert [m.reason for m in sent(c2.cancel("t", Reason.CANCELLED, 0.0))] == ["cancelled"]
        assert [m.reason for m in sent(c2.tick(0.5))] == ["cancelled"]
        c2.receive(EndAck("t", "p.0"), 0.6)
        assert c2.tick(1.2) == []

    def test_a_transfer_that_was_planned_only_tells_its_producer(self) -> None:
        c = consumer()
        actions = c.cancel("t", Reason.CANCELLED, 0.0)
        assert [m.outcome for m in sent(actions)] == ["failed"]
        assert of(actions, GiveUp) == []

    def test_the_deadline_ends_it(self) -> None:
        c = consumer(deadline_s=3.0)
        c.allocated("t", 0.0)
        assert [a.reason for a in of(c.tick(3.0), GiveUp)] == [Reason.TIMEOUT]

    def test_blocks_cannot_be_given_twice(self) -> None:
        c = consumer()
        c.allocated("t", 0.0)
        with pytest.raises(InternalError, match="not planned"):
            c.allocated("t", 0.0)
