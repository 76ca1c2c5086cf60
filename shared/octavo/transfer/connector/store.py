"""`StoreConnector`: the base of connectors that keep blocks by hash, apart from any worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from octavo.transfer.digest import digest


class StoreKey(NamedTuple):
    """`fingerprint` names layout, weights and numerics: blocks of another one are never found."""

    fingerprint: str
    group: int
    block_hash: bytes


class StoreConnector(ABC):
    """Blocks by key.  A value is one array of bytes per shard, each with its digest.

    `put` has two phases: a value is invisible until it is complete, whatever happens meanwhile.  Time is an argument
    (Unix seconds), so that several processes agree on what is too old.
    """

    name: ClassVar[str]

    @abstractmethod
    def put(self, key: StoreKey, shards: Sequence[np.ndarray], now_s: float) -> bool:
        """Store a value; True when it is visible now.  False when there is no room: nothing is left of it."""

    @abstractmethod
    def get(self, key: StoreKey, targets: Sequence[np.ndarray], now_s: float) -> bool:
        """Copy a value into `targets`, checked over the destination; False when there is none, or it was bad (and then
        it is gone, and counted).  `targets` hold anything after False."""

    @abstractmethod
    def delete(self, key: StoreKey) -> bool:
        """Remove a value; False when there was none."""

    @abstractmethod
    def list(self, fingerprint: str, now_s: float) -> Sequence[StoreKey]:
        """Keys of visible values, those last put first."""

    @abstractmethod
    def sweep(self, now_s: float) -> int:
        """Remove what is too old, and what was never completed; returns how many values went."""

    def close(self) -> None:
        """Let go of handles; values stay."""
        return


def digests_of(shards: Sequence[np.ndarray]) -> tuple[str, ...]:
    """Hex digests, one per shard, as a value carries them."""
    return tuple(digest(np.ascontiguousarray(shard)).hex() for shard in shards)
