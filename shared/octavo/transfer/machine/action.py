"""What the machines ask of their surroundings.  Actions are carried out in the order in which they are returned."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.transfer.machine.noun import Pull, ReadOrder, Reason
from octavo.transfer.message import Hello, ToConsumer, ToProducer


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` to worker `peer`.  Pages in a `Status` get their digests when it is sent."""

    peer: str
    message: ToProducer | ToConsumer


# --- producer ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetEpoch:
    """Store `epoch` in word `slot` of the epoch table, before anything that follows."""

    slot: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Free:
    """Release every hold of this transfer on the producer's blocks: nobody reads them any more."""

    transfer_id: str


@dataclass(frozen=True, slots=True)
class Begin:
    """The consumer is there: the request of this transfer may start."""

    transfer_id: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """Look the hashes of `hello` up, hold what is found, then `reserve`, `fill` and `finish` the transfer at once."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants this transfer's request any more: end it."""

    transfer_id: str
    reason: Reason


# --- consumer ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """Copy a page's bytes into the transfer's blocks, take the digests over the destination, then read the epoch."""

    transfer_id: str
    pull: Pull
    order: ReadOrder


@dataclass(frozen=True, slots=True)
class StopReads:
    """End all copies of a pull; each is answered by `read_failed`, after which it writes nothing more."""

    pull_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """All pages are verified: make them visible by one state change.  The transfer's holds pass to the receiver.

    `num_tokens` tokens are there; `payload` is the producer's.
    """

    transfer_id: str
    num_tokens: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No source is left (or the transfer was cancelled): release its holds.

    `num_tokens` leading tokens are verified in every group and may be kept; the rest is to be recomputed, unless
    `reason` is CANCELLED.  `payload` is the producer's if it came (token 0 stands whatever became of the pages).
    """

    transfer_id: str
    reason: Reason
    num_tokens: int
    payload: bytes | None


Action = Send | SetEpoch | Free | Begin | Lookup | Cancel | Read | StopReads | Commit | GiveUp
