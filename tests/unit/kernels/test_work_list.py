"""How an attention step is cut into work: everything once, within what the device has room for."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.kernels.triton.work_list import MIN_ITEM_KEYS, decode_items, prefill_tiles


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("contexts", [[1], [577] * 8, [64, 65, 8000, 3], list(range(1, 600))], ids=len)
def test_items_cover_every_visible_key_once(contexts: list[int], window: int) -> None:
    lengths = np.array(contexts)
    rows = np.arange(len(lengths)) * 3
    items = decode_items(
        rows, rows + 1, lengths, window=window, num_kv_heads=8, num_programs=264, max_items=len(lengths) + 200
    )
    num_items, body = items[0, 0], items[1:]
    assert num_items == len(body) <= len(lengths) + 200
    for index, context in enumerate(contexts):
        mine = body[body[:, 0] == rows[index]]
        first = mine[0, 5]
        assert (mine[:, 1] == rows[index] + 1).all()
        assert (mine[:, 5] == first).all()
        assert (mine[:, 6] == len(mine)).all()
        assert body[first, 0] == rows[index]
        assert (mine[1:, 2] == mine[:-1, 3]).all()
        assert mine[-1, 3] == context
        assert mine[0, 2] <= max(0, context - window if window else 0) < mine[0, 2] + MIN_ITEM_KEYS
        assert (mine[:, 2] % MIN_ITEM_KEYS == 0).all()
        assert (mine[:, 3] > mine[:, 2]).all()


def test_few_sequences_are_spread_and_many_are_not_cut() -> None:
    def num_items(num_seqs: int) -> int:
        ones = np.full(num_seqs, 600)
        at = np.arange(num_seqs)
        return int(decode_items(at, at, ones, window=0, num_kv_heads=8, num_programs=264, max_items=4096)[0, 0])

    assert num_items(1) >= 4
    assert num_items(256) == 256


def test_tiles_cover_every_row_once_longest_first() -> None:
    lengths, contexts = np.array([2, 64, 130]), np.array([900, 64, 131])
    tiles = prefill_tiles(np.array([0, 5, 100]), np.array([7, 8, 9]), lengths, contexts, 64)
    covered = [(int(r), int(r) + int(n)) for r, n, _, _ in tiles]
    assert sorted(covered) == [(0, 2), (5, 69), (100, 164), (164, 228), (228, 230)]
    ends = (tiles[:, 1] + tiles[:, 2]).tolist()
    assert ends == sorted(ends, reverse=True)
    assert ends[0] == 900
    assert {(int(t[0]), int(t[3])) for t in tiles} >= {(0, 7), (5, 8), (228, 9)}
