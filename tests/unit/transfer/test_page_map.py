"""`PageMap`: every byte that the consumer wants lands in its place, whatever the block sizes and slices."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.testing.connector_engine import HEAD_DIM, NUM_LAYERS, Shape
from octavo.testing.connector_kit import SHAPES
from octavo.transfer.connector.peer import page_digests
from octavo.transfer.digest import DIGEST_BYTES
from octavo.transfer.message import Page
from octavo.transfer.page_map import PageMap

UNIT = 16


def page_map(source: Shape, target: Shape) -> PageMap:
    return PageMap(source.terms("p", 0), target.terms("c", 0))


def block_bytes(shape: Shape, shard: int) -> int:
    return NUM_LAYERS * 2 * shape.heads[shard][1] * shape.block_size * HEAD_DIM * 4


@pytest.mark.parametrize("shape", SHAPES)
def test_runs_cover_what_is_wanted_once(shape: str) -> None:
    source, target = SHAPES[shape]
    m = page_map(source, target)
    num_tokens = 128
    written = [
        np.zeros((num_tokens // target.block_size, block_bytes(target, s)), int) for s in range(len(target.heads))
    ]
    for index in range(num_tokens // source.block_size):
        first = index * source.block_size
        units = range(first // UNIT, (first + source.block_size) // UNIT)
        for run in m.runs(index, units):
            block = first // target.block_size + run.block_step
            written[run.target_shard][block, run.target_offset : run.target_offset + run.num_bytes] += 1
            assert run.source_offset + run.num_bytes <= block_bytes(source, run.source_shard)
    assert all(np.all(w == 1) for w in written)


def test_equal_shapes_are_one_run_and_one_digest_per_shard() -> None:
    m = page_map(*SHAPES["both sliced alike"])
    assert [run.num_bytes for run in m.runs(0, [0, 1])] == [block_bytes(Shape(32, ((0, 2), (2, 2))), 0)] * 2
    regions = [np.zeros((2, 64), np.uint8)] * 2
    assert len(page_digests(m, Page(0, 0, 1), regions)) == 2 * DIGEST_BYTES


def test_neighbouring_units_are_copied_together() -> None:
    assert len(page_map(*SHAPES["consumer sliced"]).runs(0, [0, 1])) == NUM_LAYERS * 2
    assert len(page_map(*SHAPES["larger blocks"]).runs(0, [0])) == NUM_LAYERS * 2 * 4


def test_unit_digests_do_not_depend_on_block_size_or_slice() -> None:
    """Head 2 of the same tokens, read by a sliced consumer from two producers of different shape."""
    rng = np.random.default_rng(0)
    heads = rng.standard_normal((NUM_LAYERS, 2, 4, 64, HEAD_DIM), np.float32)
    target = Shape(16, ((2, 1),))
    found = []
    for source in (Shape(64), Shape(64, ((0, 2), (2, 2)))):
        regions = [
            np.ascontiguousarray(heads[:, :, first : first + num]).view(np.uint8).reshape(1, -1)
            for first, num in source.heads
        ]
        found.append(page_digests(page_map(source, target), Page(0, 0, 0), regions))
    assert found[0] == found[1]
    assert len(found[0]) == NUM_LAYERS * 2 * 4 * DIGEST_BYTES


def test_only_the_wanted_units_are_copied() -> None:
    m = page_map(*SHAPES["smaller blocks"])
    runs = m.runs(1, [6, 7])
    assert {run.block_step for run in runs} == {2, 3}
    assert sum(run.num_bytes for run in runs) == block_bytes(Shape(32), 0)
