"""`Transfer`, `Pull` and `Lease`, their states, and the limits that both sides keep."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from octavo.transfer.message import Page, ProducerEnd, Terms

UNIT_TOKENS = 16
"""Digest units, verified ranges and chain values all count in runs of this many tokens."""


class ProducerState(Enum):
    """RESERVED → FILLING → READY → RELEASED; any → FAILED | EXPIRED.  FENCING: ended, waits for local reads."""

    RESERVED = "reserved"
    FILLING = "filling"
    READY = "ready"
    FENCING = "fencing"
    RELEASED = "released"
    FAILED = "failed"
    EXPIRED = "expired"


class ConsumerState(Enum):
    """PLANNED → ALLOCATED → HELLO → PULLING → VERIFY → COMMITTED → ACKED; any → FAILED.

    ALLOCATED waits for a source, VERIFY has every page and waits for the producer's terminal message.  FAILED waits
    until no copy runs (quiesce), then goes to the next source or ends.
    """

    PLANNED = "planned"
    ALLOCATED = "allocated"
    HELLO = "hello"
    PULLING = "pulling"
    VERIFY = "verify"
    COMMITTED = "committed"
    ACKED = "acked"
    FAILED = "failed"


class Reason(Enum):
    """Why a pull, or a transfer, failed."""

    PEER_GONE = "peer_gone"
    STALE = "stale"
    INCOMPATIBLE = "incompatible"
    DIGEST = "digest"
    TIMEOUT = "timeout"
    NO_SPACE = "no_space"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Limits:
    """Times in seconds, and counts, that both machines keep."""

    park_s: float = 5.0
    lease_s: float = 30.0
    renew_s: float = 5.0
    hello_s: float = 1.0
    progress_s: float = 1.0
    probe_s: float = 0.5
    end_s: float = 0.5
    end_limit_s: float = 30.0
    tombstone_s: float = 60.0
    quarantine_s: float = 60.0
    max_bad_pages: int = 3
    max_restarts: int = 3
    max_reads: int = 8
    max_parked: int = 1024
    num_slots: int = 4096


@dataclass(slots=True)
class Lease:
    """Protects a producer's memory until `until_s`, unless renewed."""

    period_s: float
    until_s: float

    @classmethod
    def start(cls, period_s: float, now_s: float) -> Lease:
        return cls(period_s, now_s + period_s)

    def renew(self, now_s: float) -> None:
        self.until_s = max(self.until_s, now_s + self.period_s)

    def is_over(self, now_s: float) -> bool:
        return now_s >= self.until_s


@dataclass(slots=True)
class Transfer:
    """One move, as one side knows it.  `owner` is (request id, attempt), or ("", 0) for a copy by hash."""

    transfer_id: str
    owner: tuple[str, int]
    opened_s: float
    peer: str = ""
    epoch: int = 0


@dataclass(slots=True)
class Outgoing(Transfer):
    """The producer's side.

    `pages` is everything filled so far; `pull_id`, `terms` and `have_tokens` are those of the latest hello.
    `num_reads` counts local reads of its pages; `end` is the terminal message once it was made.
    """

    state: ProducerState = ProducerState.RESERVED
    slot: int = 0
    pages: list[Page] = field(default_factory=list)
    pull_id: int = 0
    peer_incarnation: str = ""
    terms: Terms | None = None
    have_tokens: int = 0
    num_reads: int = 0
    lease: Lease | None = None
    ending: ProducerState | None = None
    end: ProducerEnd | None = None

    @property
    def is_readable(self) -> bool:
        return self.state in (ProducerState.FILLING, ProducerState.READY)

    def wanted(self, block_size: int) -> list[Page]:
        """Pages that hold a token past the consumer's prefix; the list only grows within one pull."""
        return [p for p in self.pages if (p.index + 1) * block_size > self.have_tokens]


@dataclass(frozen=True, slots=True)
class Source:
    """Where pages may come from: a worker's incarnation through one connector.

    A source with `is_request` was given the request itself and also brings the payload; others are asked by hash.
    `predicted_s` is how long the whole pull should take.
    """

    worker_id: str
    incarnation: str
    connector: str
    is_request: bool = True
    predicted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """One page to copy: `read` numbers it within the consumer; `units` are the (group, unit) that it brings."""

    read: int
    page: Page
    units: frozenset[tuple[int, int]]


@dataclass(slots=True)
class Pull:
    """One try of a transfer at one source.

    `pages` are those announced, `queue` those still to read (numbers into `pages`), `reads` the copies that run.
    """

    pull_id: int
    source: Source
    started_s: float
    progress_s: float
    sent_s: float
    epoch: int = 0
    slot: int = 0
    terms: Terms | None = None
    pages: list[Page] = field(default_factory=list)
    queue: deque[Page] = field(default_factory=deque)
    reads: dict[int, ReadOrder] = field(default_factory=dict)
    probe_number: int = 0
    probed_s: float | None = None
    num_bad_pages: int = 0
    failure: Reason | None = None
    has_end: bool = False
    is_restart: bool = False


@dataclass(slots=True)
class Incoming(Transfer):
    """The consumer's side.

    `missing` are the (group, unit of 16 tokens) without verified bytes.  `sources` are those not tried yet, `skipped`
    those in quarantine.  With `is_partial` the pages that a source holds are enough.  `end` is the producer's `ready`
    message once it came; its payload is taken once and never replaced.
    """

    state: ConsumerState = ConsumerState.PLANNED
    sources: deque[Source] = field(default_factory=deque)
    skipped: list[Source] = field(default_factory=list)
    have_tokens: int = 0
    num_tokens: int = 0
    hashes: tuple[bytes, ...] = ()
    namespace: bytes = b""
    is_partial: bool = False
    deadline_s: float = 0.0
    missing: set[tuple[int, int]] = field(default_factory=set)
    pull: Pull | None = None
    end: ProducerEnd | None = None
    num_restarts: int = 0
    failure: Reason | None = None
    has_holds: bool = False

    @property
    def num_verified(self) -> int:
        """Leading tokens that every group has, verified or from before."""
        first = min((unit for _, unit in self.missing), default=None)
        return self.num_tokens if first is None else min(first * UNIT_TOKENS, self.num_tokens)
