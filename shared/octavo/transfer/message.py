"""Messages between the two workers of a transfer, and what they carry.

All are positional msgpack structs behind a version byte: fields are only appended, each with a default.  The consumer
drives: it says hello, renews and ends; the producer answers, and announces pages as they are filled.  A message may be
sent again unchanged; receivers are idempotent.
"""

from __future__ import annotations

import msgspec

from octavo.kv.layout import KVLayout
from octavo.kv.offer import TRANSFER_MIN_VERSION, TRANSFER_VERSION, Shard
from octavo.wire.message import Codec

OUTCOME_READY = "ready"
OUTCOME_ACKED = "acked"
OUTCOME_FAILED = "failed"


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What two workers compare before bytes move: one side's model, layout, slices, versions and algorithms.

    `layout` is the whole model's (all layers of a group, all KV heads); `shards` say how ranks cut it.  `connectors`
    maps the name of each connector that this side offers to its address.  `nonce` also stands in this side's shared
    memory, where only a process of the same host can read it.
    """

    worker_id: str
    incarnation: str
    content_id: str
    layout: KVLayout
    shards: tuple[Shard, ...]
    algorithms: tuple[str, ...] = ()
    protocol_min: int = TRANSFER_MIN_VERSION
    protocol_max: int = TRANSFER_VERSION
    connectors: dict[str, str] = {}
    nonce: bytes = b""


class Page(msgspec.Struct, frozen=True, array_like=True):
    """One filled block of the producer: number `index` of the sequence in `group`, in block `block` of its pools.

    `digests` are 8 bytes for each digest unit that the consumer reads, in the order in which it reads them.
    """

    group: int
    index: int
    block: int
    digests: bytes = b""


# --- consumer → producer -----------------------------------------------------------------------------------------


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """Open a pull.  `have_tokens` leading tokens need no pages.

    With `hashes` (block hashes, ascending) the transfer is for what the producer holds of them; without, for the
    request that the producer was given with this transfer id.
    """

    transfer_id: str
    pull_id: int
    terms: Terms
    have_tokens: int = 0
    hashes: list[bytes] = []
    namespace: bytes = b""


class Renew(msgspec.Struct, array_like=True, tag="renew"):
    """Still wanted.  The answer names the pages from number `num_pages` on."""

    transfer_id: str
    pull_id: int
    worker_id: str
    incarnation: str
    num_pages: int


class ConsumerEnd(msgspec.Struct, array_like=True, tag="consumer_end"):
    """The consumer's terminal message: `acked`, or `failed` with a reason."""

    transfer_id: str
    pull_id: int
    worker_id: str
    incarnation: str
    outcome: str
    reason: str = ""


class Probe(msgspec.Struct, array_like=True, tag="probe"):
    """Does the thread that serves the bytes run?"""

    worker_id: str
    pull_id: int
    number: int


ToProducer = Hello | Renew | ConsumerEnd | Probe


# --- producer → consumer -----------------------------------------------------------------------------------------


class Status(msgspec.Struct, array_like=True, tag="status"):
    """Where the transfer is: its epoch, and filled pages, the first of which is number `first` of those announced.

    `state` is the producer's; `unknown` refuses the hello of a transfer that was never opened there, and any state
    but `reserved`, `filling` and `ready` means that no page can be read (any more).

    `epoch` stands in word `slot` of the producer's epoch table for as long as the pages may be read.
    """

    transfer_id: str
    pull_id: int
    terms: Terms
    state: str
    epoch: int
    slot: int
    first: int = 0
    pages: list[Page] = []


class ProducerEnd(msgspec.Struct, array_like=True, tag="producer_end"):
    """The producer's terminal message: `ready` (all `num_tokens` are filled; `num_pages` were announced) or `failed`.

    `payload` is what the prefill stage adds for the decode stage (token 0 and what belongs to it), opaque here.
    """

    transfer_id: str
    pull_id: int
    incarnation: str
    outcome: str
    reason: str = ""
    num_tokens: int = 0
    num_pages: int = 0
    payload: bytes = b""


class EndAck(msgspec.Struct, array_like=True, tag="end_ack"):
    """The consumer's terminal message arrived; also for a transfer that is not known (any more)."""

    transfer_id: str
    incarnation: str


class ProbeReply(msgspec.Struct, array_like=True, tag="probe_reply"):
    incarnation: str
    pull_id: int
    number: int


ToConsumer = Status | ProducerEnd | EndAck | ProbeReply

PEER: Codec[ToProducer | ToConsumer] = Codec(ToProducer | ToConsumer, TRANSFER_VERSION, TRANSFER_MIN_VERSION)
"""Both directions on one link."""
