"""`PageMap`: which bytes of a producer's block go where in a consumer's blocks, and the digest units they form.

Block sizes and the cut into shards may differ.  Where both are the same, a page is one run of bytes per shard and one
digest; else it is runs of tokens per (layer, k|v, KV head), with one digest per unit of 16 tokens, which is the same
whatever the block size and the slice.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from octavo.kv.layout import DTYPE_BYTES
from octavo.transfer.machine.noun import UNIT_TOKENS
from octavo.transfer.message import Shard, Terms


class Run(NamedTuple):
    """`num_bytes` from `source_offset` of a block in the producer's shard to the consumer's.

    `block_step` counts the consumer's blocks from the one that holds the page's first token.  Shards are numbers into
    the two `Terms.shards`.
    """

    source_shard: int
    source_offset: int
    target_shard: int
    block_step: int
    target_offset: int
    num_bytes: int


class Unit(NamedTuple):
    """A digest unit: where it lies on either side, and its number among the digests of its page."""

    run: Run
    number: int


def _geometry(shards: Iterable[Shard]) -> list[tuple[int, int, int, int]]:
    return [(s.first_layer, s.num_layers, s.first_head, s.num_heads) for s in shards]


class PageMap:
    """The map between one producer and one consumer, for pages of any group (all groups have the same shape)."""

    def __init__(self, source: Terms, target: Terms) -> None:
        self.source, self.target = source, target
        self.source_block_size = source.layout.block_size
        self.target_block_size = target.layout.block_size
        self._row_bytes = source.layout.head_dim * DTYPE_BYTES[source.layout.dtype]
        self.unit_bytes = UNIT_TOKENS * self._row_bytes
        self.is_whole = self.source_block_size == self.target_block_size and _geometry(source.shards) == _geometry(
            target.shards
        )
        self._units: dict[tuple[int, tuple[int, ...]], list[Unit]] = {}
        self._runs: dict[tuple[int, tuple[int, ...]], list[Run]] = {}

    def first_token(self, index: int) -> int:
        return index * self.source_block_size

    def block_bytes(self, terms: Terms, shard: int) -> int:
        """Bytes of a block in one shard."""
        s = terms.shards[shard]
        return s.num_layers * 2 * s.num_heads * terms.layout.block_size * self._row_bytes

    def units(self, index: int, wanted: Iterable[int] | None = None) -> list[Unit]:
        """The digest units of page `index`, or only those of the wanted 16-token units (numbered over the sequence).

        Numbers run over (shard, layer, k|v, head, unit) of what the consumer reads.  Not for whole pages.
        """
        first = self.first_token(index) // UNIT_TOKENS
        num = self.source_block_size // UNIT_TOKENS
        chosen = tuple(range(num)) if wanted is None else tuple(sorted(u - first for u in wanted))
        key = (self.first_token(index) % self.target_block_size, chosen)
        if key not in self._units:
            self._units[key] = self._make_units(key[0], set(chosen))
        return self._units[key]

    def runs(self, index: int, wanted: Iterable[int]) -> list[Run]:
        """The fewest runs that bring the wanted 16-token units of page `index`."""
        if self.is_whole:
            sizes = [self.block_bytes(self.source, s) for s in range(len(self.source.shards))]
            return [Run(shard, 0, shard, 0, 0, size) for shard, size in enumerate(sizes)]
        wanted = tuple(sorted(wanted))
        key = (
            self.first_token(index) % self.target_block_size,
            tuple(u * UNIT_TOKENS % self.source_block_size for u in wanted),
        )
        if key not in self._runs:
            self._runs[key] = self._merge([unit.run for unit in self.units(index, wanted)])
        return self._runs[key]

    def _make_units(self, start: int, chosen: set[int]) -> list[Unit]:
        """`start` is where the page's first token lies in the consumer's block."""
        out: list[Unit] = []
        number = 0
        for source_shard, s in enumerate(self.source.shards):
            for target_shard, t in enumerate(self.target.shards):
                layers = range(
                    max(s.first_layer, t.first_layer), min(s.first_layer + s.num_layers, t.first_layer + t.num_layers)
                )
                heads = range(
                    max(s.first_head, t.first_head), min(s.first_head + s.num_heads, t.first_head + t.num_heads)
                )
                for plane in [(layer, kv, head) for layer in layers for kv in (0, 1) for head in heads]:
                    for unit in range(self.source_block_size // UNIT_TOKENS):
                        if unit in chosen:
                            token = start + unit * UNIT_TOKENS
                            run = Run(
                                source_shard,
                                self._offset(s, self.source_block_size, plane, unit * UNIT_TOKENS),
                                target_shard,
                                token // self.target_block_size,
                                self._offset(t, self.target_block_size, plane, token % self.target_block_size),
                                self.unit_bytes,
                            )
                            out.append(Unit(run, number))
                        number += 1
        return out

    def _offset(self, shard: Shard, block_size: int, plane: tuple[int, int, int], token: int) -> int:
        layer, kv, head = plane
        row = ((layer - shard.first_layer) * 2 + kv) * shard.num_heads + head - shard.first_head
        return (row * block_size + token) * self._row_bytes

    @staticmethod
    def _merge(runs: list[Run]) -> list[Run]:
        out: list[Run] = []
        for run in runs:
            last = out[-1] if out else None
            if (
                last is not None
                and last.source_shard == run.source_shard
                and last.target_shard == run.target_shard
                and last.block_step == run.block_step
                and last.source_offset + last.num_bytes == run.source_offset
                and last.target_offset + last.num_bytes == run.target_offset
            ):
                out[-1] = last._replace(num_bytes=last.num_bytes + run.num_bytes)
            else:
                out.append(run)
        return out
