"""The conformance kit: what every peer connector and every store must do, whatever moves the bytes.

`PEER_CASES` and `STORE_CASES` are functions that take the connector's name (and a folder); a test runs each for every
registered name.  Pages carry known bytes; every case ends with all blocks, leases, pulls and reads back.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from octavo import faults
from octavo.testing.connector_engine import MAX_TOKENS, Shape, Worker
from octavo.transfer.connector.peer import Copied
from octavo.transfer.connector.registry import create_peer, create_store
from octavo.transfer.connector.store import StoreConnector, StoreKey
from octavo.transfer.link import LocalLink
from octavo.transfer.machine.noun import ConsumerState, Incoming, ProducerState, Reason, Source

WAIT_S = 20.0
SHAPES = {
    "same": (Shape(32), Shape(32)),
    "smaller blocks": (Shape(64), Shape(16)),
    "larger blocks": (Shape(16), Shape(64)),
    "producer sliced": (Shape(32, ((0, 2), (2, 2))), Shape(32)),
    "consumer sliced": (Shape(32), Shape(32, ((2, 2),))),
    "both sliced, other blocks": (Shape(16, ((0, 1), (1, 3))), Shape(32, ((0, 2), (2, 2)))),
    "both sliced alike": (Shape(32, ((0, 2), (2, 2))), Shape(32, ((0, 2), (2, 2)))),
}


class Pair:
    """A producer `p`, another one `q` that holds the same blocks, and a consumer `c`, on one thread."""

    def __init__(self, name: str, producer: Shape | None = None, consumer: Shape | None = None) -> None:
        self.name = name
        self.skew_s = 0.0
        shapes = {"p": producer or Shape(), "q": producer or Shape(), "c": consumer or Shape()}
        self.workers = {
            worker_id: Worker(worker_id, shape, [create_peer(name)], LocalLink(), self.clock)
            for worker_id, shape in shapes.items()
        }
        self.p, self.q, self.c = (self.workers[w] for w in "pqc")

    def clock(self) -> float:
        return time.monotonic() + self.skew_s

    def skip(self, seconds: float) -> None:
        """Let time pass: deadlines and time-outs come, nothing else happens."""
        self.skew_s += seconds

    def run(self, until: Callable[[], bool], what: str = "the end") -> None:
        """Step everybody until `until()`; fails after 20 s."""
        end_s = time.monotonic() + WAIT_S
        while not until():
            if time.monotonic() > end_s:
                raise AssertionError(f"{self.name}: {what} did not come within {WAIT_S:g} s")
            if not self.step():
                time.sleep(0.0005)

    def step(self) -> bool:
        """One step of every worker that runs; True when any had something to do."""
        were_busy = [worker.step() for worker in self.workers.values()]
        return any(were_busy)

    def run_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.run(lambda: time.monotonic() > end_s)

    def open(self, num_tokens: int, *, have_tokens: int = 0, order: str = "p", transfer_id: str = "t") -> None:
        transfer = Incoming(transfer_id, (transfer_id, 1), self.clock(), num_tokens=num_tokens, have_tokens=have_tokens)
        transfer.hashes = (b"hash",)
        peers = [self.workers[w].terms for w in order]
        sources = [Source(t.worker_id, t.incarnation, self.name, t.worker_id == "p") for t in peers]
        self.c.endpoint.open(transfer, sources, peers)

    def allocate(self, num_tokens: int, transfer_id: str = "t") -> None:
        self.c.endpoint.allocated(transfer_id, self.c.allocate(transfer_id, num_tokens))

    def outcome(self, transfer_id: str = "t") -> str:
        found = self.c.engine.outcomes.get(transfer_id)
        return "" if found is None else found.kind

    def state(self, transfer_id: str = "t") -> ConsumerState | None:
        transfer = self.c.endpoint.consumer.ledger.get(transfer_id)
        return None if transfer is None else transfer.state

    def settle(self) -> None:
        """End what was committed; then nothing may be left anywhere."""
        for transfer_id, outcome in self.c.engine.outcomes.items():
            if outcome.kind == "commit" and transfer_id in self.c.engine.tables:
                self.c.end_sequence(transfer_id)
        alive = [w for w in self.workers.values() if not w.is_dead]
        for worker in alive:
            worker.is_stopped = False
        for _ in range(2):
            self.skip(31.0)  # leases and endings of peers that are gone
            self.run_for(0.05)
        self.run(
            lambda: not any(self.left(w) for w in alive), f"an end without leftovers: {[self.left(w) for w in alive]}"
        )
        for worker in alive:
            worker.endpoint.check_integrity()
            worker.engine.pool.check_integrity()
            worker.endpoint.close()

    @staticmethod
    def left(worker: Worker) -> list[str]:
        endpoint, pool = worker.endpoint, worker.engine.pool
        found = [t.transfer_id for ledger in (endpoint.producer.ledger, endpoint.consumer.ledger) for t in ledger]
        if pool.num_free != pool.num_blocks:
            found.append(f"{pool.num_blocks - pool.num_free} blocks")
        return found + (["a connector is busy"] if endpoint.is_busy else [])


@contextmanager
def pair_of(name: str, producer: Shape | None = None, consumer: Shape | None = None) -> Iterator[Pair]:
    pair = Pair(name, producer, consumer)
    try:
        yield pair
        pair.settle()
    finally:
        for worker in pair.workers.values():
            if not worker.is_dead:
                worker.endpoint.close()


def check_exact(pair: Pair, num_tokens: int, *, num_recomputes: int = 0, from_token: int = 0) -> None:
    """The transfer was committed, every byte is right, and nothing was recomputed unless allowed."""
    outcome = pair.c.engine.outcomes["t"]
    assert outcome.kind == "commit", f"ended as {outcome}"
    assert outcome.num_tokens == num_tokens
    assert pair.c.wrong_pages("t", num_tokens, from_token) == []
    assert pair.c.endpoint.consumer.counters.num_recomputes == num_recomputes


# --- peer connectors ---------------------------------------------------------------------------------------------


def moves_pages_of_every_shape(name: str, shape: str) -> None:
    """Pages come right for every pair of block sizes and slices, pulled while they are filled."""
    with pair_of(name, *SHAPES[shape]) as pair:
        pages = pair.p.reserve("t", 150)
        pair.open(150)
        pair.allocate(150)
        for start in range(0, len(pages), 3):
            pair.p.endpoint.fill("t", pages[start : start + 3])
            for _ in range(3):
                pair.step()
        pair.p.endpoint.finish("t", 150, b"token 0")
        pair.run(lambda: pair.outcome() != "", "the outcome")
        check_exact(pair, 150)
        assert pair.c.engine.outcomes["t"].payload == b"token 0"
        counters = pair.c.endpoint.consumer.counters
        assert (counters.num_pages, counters.num_bad_pages) == (len(pages), 0)
        assert pair.c.endpoint.num_bytes[name] > 0


def leaves_the_prefix_alone(name: str) -> None:
    """With `have_tokens`, blocks of the prefix are neither asked for nor written."""
    with pair_of(name) as pair:
        pages = pair.p.reserve("t", 128)
        pair.p.endpoint.fill("t", pages)
        pair.p.endpoint.finish("t", 128)
        pair.open(128, have_tokens=64)
        pair.allocate(128)
        pair.run(lambda: pair.outcome() != "")
        check_exact(pair, 128, from_token=64)
        assert all(np.all(pair.c.regions[0][table[0]] == 0xEE) for table in pair.c.engine.tables["t"])
        assert pair.c.endpoint.consumer.counters.num_pages == 4


def a_hello_before_the_request_parks(name: str) -> None:
    with pair_of(name) as pair:
        pair.open(64)
        pair.allocate(64)
        pair.run(lambda: pair.p.endpoint.producer.counters.num_parked == 1, "the parked hello")
        pages = pair.p.reserve("t", 64)
        assert pair.p.engine.begun == ["t"]
        pair.p.endpoint.fill("t", pages)
        pair.p.endpoint.finish("t", 64)
        pair.run(lambda: pair.outcome() != "")
        check_exact(pair, 64)


def pulls_by_hash(name: str) -> None:
    """A worker that holds the blocks answers at once; what it does not hold is left to the caller."""
    with pair_of(name) as pair:
        pair.q.num_lookup_tokens = 64
        pair.open(100, order="q")
        pair.allocate(100)
        pair.run(lambda: pair.outcome() != "")
        outcome = pair.c.engine.outcomes["t"]
        assert (outcome.kind, outcome.num_tokens) == ("give_up", 64)


def a_peer_that_dies(name: str) -> None:
    """Half filled, then gone: the other source brings the rest, and what was verified is not fetched again."""
    with pair_of(name) as pair:
        pair.q.num_lookup_tokens = MAX_TOKENS // 4
        pages = pair.p.reserve("t", 128)
        pair.p.endpoint.fill("t", pages[:4])
        pair.open(128, order="pq")
        pair.allocate(128)
        pair.run(lambda: pair.c.endpoint.consumer.counters.num_pages == 4, "the first pages")
        pair.p.die()
        pair.skip(1.0)
        pair.run(lambda: pair.c.endpoint.consumer.counters.num_probes == 1, "the probe")
        pair.skip(0.6)
        pair.run(lambda: pair.outcome() != "")
        check_exact(pair, 128)
        assert pair.c.endpoint.consumer.counters.failures == {"timeout": 1}
        assert pair.c.endpoint.consumer.counters.num_pages == len(pages)
        pair.c.endpoint.forget(pair.p.terms)


def a_peer_that_dies_alone(name: str) -> None:
    """No other source: what is verified is kept, the rest is said to be missing."""
    with pair_of(name) as pair:
        pages = pair.p.reserve("t", 128)
        pair.p.endpoint.fill("t", pages[:4])
        pair.open(128)
        pair.allocate(128)
        pair.run(lambda: pair.c.endpoint.consumer.counters.num_pages == 4)
        pair.p.die()
        pair.c.endpoint.forget(pair.p.terms)
        pair.run(lambda: pair.outcome() != "")
        outcome = pair.c.engine.outcomes["t"]
        assert (outcome.kind, outcome.num_tokens, outcome.reason) == ("give_up", 64, Reason.PEER_GONE)


def a_stopped_peer_and_its_late_replies(name: str) -> None:
    """Stopped for longer than the time-out: another source takes over; what the first still sends changes nothing."""
    with pair_of(name) as pair:
        pair.q.num_lookup_tokens = 128
        pages = pair.p.reserve("t", 128)
        pair.open(128, order="pq")
        pair.allocate(128)
        pair.run(lambda: pair.state() is ConsumerState.PULLING, "the hello")
        pair.p.endpoint.fill("t", pages)
        pair.p.is_stopped = True
        pair.q.is_stopped = True
        pair.c.step()
        pull = pair.c.endpoint.consumer.ledger.get("t").pull  # type: ignore[union-attr]
        assert pull is not None
        reads = dict(pull.reads)
        old_pull_id = pull.pull_id
        pair.skip(1.0)
        pair.run(lambda: pair.c.endpoint.consumer.counters.num_probes >= 1, "the probe")
        pair.skip(0.6)
        pair.q.is_stopped = False
        pair.run(lambda: pair.outcome() != "")
        check_exact(pair, 128)
        num_late = pair.c.endpoint.consumer.counters.num_late
        pair.p.connectors[name].poll()  # its bytes go out before it hears that nobody wants them
        for read in reads or {0: None}:
            pair.c.endpoint._run(pair.c.endpoint._take(Copied(old_pull_id, read, b"", 0)))
        pair.p.is_stopped = False
        pair.run_for(0.05)
        assert pair.c.endpoint.consumer.counters.num_late > num_late
        assert pair.c.wrong_pages("t", 128) == []


def a_corrupted_byte(name: str) -> None:
    """Found before anybody can use it, fetched again, counted."""
    with pair_of(name) as pair:
        pages = pair.p.reserve("t", 128)
        pair.open(128)
        pair.allocate(128)
        pair.run(lambda: pair.state() is ConsumerState.PULLING)
        pair.p.endpoint.fill("t", pages)
        place = pair.p.regions[0][pages[2].block]
        place[77] ^= 0x10
        pair.run(lambda: pair.c.endpoint.consumer.counters.num_bad_pages == 1, "the bad page")
        place[77] ^= 0x10
        pair.p.endpoint.finish("t", 128)
        pair.run(lambda: pair.outcome() != "")
        check_exact(pair, 128)


def a_sender_of_bad_pages(name: str) -> None:
    """The third bad page puts the sender out for a minute; the next transfer does not ask it."""
    with pair_of(name) as pair:
        pair.q.num_lookup_tokens = 64
        pages = pair.p.reserve("t", 64)
        pair.open(64, order="pq")
        pair.allocate(64)
        pair.run(lambda: pair.state() is ConsumerState.PULLING)
        pair.p.endpoint.fill("t", pages)
        pair.p.regions[0][pages[1].block][5] ^= 1
        pair.run(lambda: pair.outcome() != "")
        check_exact(pair, 64)
        counters = pair.c.endpoint.consumer.counters
        assert (counters.num_bad_pages, counters.num_quarantines, counters.failures) == (3, 1, {"digest": 1})
        pair.open(64, order="pq", transfer_id="u")
        pair.allocate(64, "u")
        pair.run(lambda: pair.outcome("u") != "")
        assert pair.c.engine.outcomes["u"].kind == "commit"
        assert pair.p.endpoint.producer.ledger.get("u") is None
        assert counters.num_pulls == 3


def memory_used_again(name: str) -> None:
    """The producer ends the transfer and its blocks get other bytes while they are read: never used, nobody blamed."""
    with pair_of(name) as pair:
        pages = pair.p.reserve("t", 128)
        pair.open(128)
        pair.allocate(128)
        pair.run(lambda: pair.state() is ConsumerState.PULLING)
        pair.p.endpoint.fill("t", pages)
        pair.c.step()
        pair.p.endpoint.fail("t", Reason.CANCELLED)
        assert pair.p.engine.pool.num_free == pair.p.engine.pool.num_blocks
        for region in pair.p.regions:
            region[:] = 0x11
        pair.c.link.poll()  # the word that it ended is lost: only the epoch says so
        pair.run(lambda: pair.outcome() != "")
        assert pair.c.engine.outcomes["t"].kind == "give_up"
        counters = pair.c.endpoint.consumer.counters
        assert (counters.failures, counters.num_bad_pages) == ({"stale": 1}, 0)


def a_bad_link(name: str) -> None:
    """The hello is lost, other messages are doubled and reordered (fault point `transfer.send`): late, but exact."""
    faults.arm("transfer.send#1:drop,transfer.send%2:double,transfer.send#7-9:reorder")
    try:
        with pair_of(name) as pair:
            pages = pair.p.reserve("t", 128)
            pair.open(128)
            pair.allocate(128)
            end_s = time.monotonic() + WAIT_S
            while not pair.outcome() and time.monotonic() < end_s:
                pair.run_for(0.02)
                pair.skip(0.3)
                pair.p.endpoint.fill("t", pages[:3])
                del pages[:3]
                if not pages:
                    pair.p.endpoint.finish("t", 128, b"token 0")
            check_exact(pair, 128)
            assert pair.c.endpoint.consumer.counters.num_bad_pages == 0
    finally:
        faults.arm("")


def a_restarted_peer(name: str) -> None:
    """Twenty lives behind one name: an old one is never used, and nothing of it stays mapped or connected."""
    with pair_of(name) as pair:
        num_open = {}
        for life in range(1, 21):
            pages = pair.p.reserve(f"t{life}", 64)
            pair.open(64, transfer_id=f"t{life}")
            pair.allocate(64, f"t{life}")
            pair.p.endpoint.fill(f"t{life}", pages)
            old = pair.p
            pair.run(lambda: pair.c.endpoint.consumer.counters.num_pages > 0)
            old.die()
            pair.c.endpoint.forget(old.terms)
            pair.run(lambda n=f"t{life}": pair.outcome(n) == "give_up")  # type: ignore[misc]
            pair.workers["p"] = pair.p = Worker("p", Shape(), [create_peer(name)], LocalLink(), pair.clock, life)
            num_open[life] = num_handles()
        assert abs(num_open[20] - num_open[2]) <= 2, f"open files and mappings by life: {num_open}"


def num_handles() -> int:
    """Open files of this process, and its mappings of pools."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return len(list(Path("/proc/self/fd").iterdir())) + maps.count("memfd:octavo-kv")


def an_abort_in_each_state(name: str, side: str, state: str) -> None:
    """Whoever ends it, wherever it is: every hold comes back and both sides end."""
    with pair_of(name) as pair:
        if state != "planned" or side == "producer":
            pages = pair.p.reserve("t", 128)
        pair.open(128)
        if state not in ("planned", "reserved"):
            pair.allocate(128)
        if state in ("pulling", "filling", "ready", "verify", "fencing"):
            pair.run(lambda: pair.state() is ConsumerState.PULLING)
            pair.p.endpoint.fill("t", pages[:5] if state in ("pulling", "filling") else pages)
            pair.c.step()
        if state == "verify":
            pair.run(lambda: pair.state() is ConsumerState.VERIFY)
        if state in ("ready", "fencing"):
            pair.p.endpoint.finish("t", 128)
        if state == "fencing":
            pair.p.step()
            pair.p.endpoint.fail("t", Reason.CANCELLED)
        if side == "consumer":
            pair.c.endpoint.cancel("t")
        else:
            pair.p.endpoint.fail("t", Reason.CANCELLED)
        pair.run(lambda: pair.state() is None or side == "producer", "the consumer's end")
        if side == "producer" and state == "reserved":
            pair.c.endpoint.cancel("t")
        pair.run(lambda: pair.p.endpoint.producer.ledger.get("t") is None, "the producer's end")


ABORTS = [
    ("consumer", state)
    for state in (ConsumerState.PLANNED, ConsumerState.HELLO, ConsumerState.PULLING, ConsumerState.VERIFY)
] + [
    ("producer", state)
    for state in (ProducerState.RESERVED, ProducerState.FILLING, ProducerState.READY, ProducerState.FENCING)
]
PEER_CASES: dict[str, Callable[[str], None]] = {
    **{f"shapes: {s}": lambda name, s=s: moves_pages_of_every_shape(name, s) for s in SHAPES},  # type: ignore[misc]
    **{
        f"abort: {side} {state.value}": lambda name, a=side, b=state.value: an_abort_in_each_state(name, a, b)  # type: ignore[misc]
        for side, state in ABORTS
    },
    **{
        case.__name__: case
        for case in (
            leaves_the_prefix_alone,
            a_hello_before_the_request_parks,
            pulls_by_hash,
            a_peer_that_dies,
            a_peer_that_dies_alone,
            a_stopped_peer_and_its_late_replies,
            a_corrupted_byte,
            a_sender_of_bad_pages,
            memory_used_again,
            a_bad_link,
            a_restarted_peer,
        )
    },
}


# --- stores ------------------------------------------------------------------------------------------------------

KEY = StoreKey("layout-1", 0, b"\x01" * 16)
NOW_S = 1_000_000.0


def _value(seed: int = 0, num_bytes: int = 3 << 19) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, num_bytes, np.uint8) for _ in range(2)]


def _targets(value: list[np.ndarray]) -> list[np.ndarray]:
    return [np.zeros_like(shard) for shard in value]


def _store(name: str, folder: Path, **settings: object) -> StoreConnector:
    return create_store(name, path=str(folder / "store"), **settings)


def puts_and_gets(name: str, folder: Path) -> None:
    store, other, value = _store(name, folder), _store(name, folder), _value()
    assert not store.get(KEY, _targets(value), NOW_S)
    assert store.put(KEY, value, NOW_S)
    got = _targets(value)
    assert other.get(KEY, got, NOW_S)
    assert all(np.array_equal(a, b) for a, b in zip(got, value, strict=True))
    assert list(other.list("layout-1", NOW_S)) == [KEY]
    assert list(other.list("layout-2", NOW_S)) == []
    assert not other.get(KEY._replace(fingerprint="layout-2"), got, NOW_S)
    assert other.delete(KEY)
    assert not other.delete(KEY)
    assert not store.get(KEY, got, NOW_S)


def forgets_what_is_old(name: str, folder: Path) -> None:
    store, value = _store(name, folder, ttl_s=10.0), _value()
    store.put(KEY, value, NOW_S)
    assert store.get(KEY, _targets(value), NOW_S + 9)
    assert not store.get(KEY, _targets(value), NOW_S + 10)
    assert list(store.list("layout-1", NOW_S + 10)) == []
    assert store.sweep(NOW_S + 10) == 1


def keeps_to_its_limit(name: str, folder: Path) -> None:
    """The oldest value makes room; one that can never fit is refused and removes nothing."""
    store, value = _store(name, folder, size_limit_bytes=7 << 20), _value()
    keys = [KEY._replace(block_hash=bytes([n]) * 16) for n in range(3)]
    assert [store.put(key, value, NOW_S + n) for n, key in enumerate(keys)] == [True] * 3
    assert list(store.list("layout-1", NOW_S)) == [keys[2], keys[1]]
    assert not store.put(KEY._replace(block_hash=b"\xff" * 16), _value(1, 4 << 20), NOW_S)
    assert list(store.list("layout-1", NOW_S)) == [keys[2], keys[1]]


def a_corrupted_byte_on_disk(name: str, folder: Path) -> None:
    store, value = _store(name, folder), _value()
    store.put(KEY, value, NOW_S)
    (path,) = [p for p in (folder / "store").rglob("*") if p.is_file()]
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))
    assert not store.get(KEY, _targets(value), NOW_S)
    assert list(store.list("layout-1", NOW_S)) == []


def a_value_cut_short(name: str, folder: Path) -> None:
    for size in (0, 5, 60, 1 << 20):
        store, value = _store(name, folder), _value()
        store.put(KEY, value, NOW_S)
        (path,) = [p for p in (folder / "store").rglob("*") if p.is_file()]
        path.write_bytes(path.read_bytes()[:size])
        assert not store.get(KEY, _targets(value), NOW_S)
        assert not store.delete(KEY)


def a_full_disk(name: str, folder: Path) -> None:
    """A write that fails half-way leaves nothing, and the store goes on when there is room again."""
    store, value = _store(name, folder), _value()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        assert not store.put(KEY, value, NOW_S)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p for p in (folder / "store").rglob("*") if p.is_file()] == []
    assert not store.get(KEY, _targets(value), NOW_S)
    assert store.put(KEY, value, NOW_S)
    assert store.get(KEY, _targets(value), NOW_S)


def a_value_that_does_not_fit(name: str, folder: Path) -> None:
    """Another number or size of shards is no hit."""
    store, value = _store(name, folder), _value()
    store.put(KEY, value, NOW_S)
    assert not store.get(KEY, _targets(value)[:1], NOW_S)
    store.put(KEY, value, NOW_S)
    assert not store.get(KEY, [t[:-8] for t in _targets(value)], NOW_S)


STORE_CASES: dict[str, Callable[[str, Path], None]] = {
    case.__name__: case
    for case in (
        puts_and_gets,
        forgets_what_is_old,
        keeps_to_its_limit,
        a_corrupted_byte_on_disk,
        a_value_cut_short,
        a_full_disk,
        a_value_that_does_not_fit,
    )
}
