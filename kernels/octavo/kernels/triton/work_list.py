"""What an attention step has to do, as arrays that the kernels read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

ITEM_FIELDS = 8
TILE_FIELDS = 4
MIN_ITEM_KEYS = 64
MAX_ITEM_KEYS = 512


def decode_items(
    rows: Int64Array,
    table_rows: Int64Array,
    contexts: Int64Array,
    *,
    window: int,
    num_kv_heads: int,
    num_programs: int,
    max_items: int,
) -> Int32Array:
    """Items int32 [1 + num_items, ITEM_FIELDS] for sequences with one query row each; the first entry is their number.

    Keys are cut into equal parts of whole `MIN_ITEM_KEYS`, as many as keep every program busy once, so that few
    sequences are spread over the device and many are not cut at all.
    """
    if not len(rows):
        return np.zeros((1, ITEM_FIELDS), dtype=np.int32)
    first_keys = np.maximum(contexts - window, 0) // MIN_ITEM_KEYS * MIN_ITEM_KEYS if window else contexts * 0
    lengths = contexts - first_keys
    wanted = -(-int(lengths.sum()) * num_kv_heads // num_programs)
    room = max(1, max_items - len(rows))
    chunk = max(min(wanted, MAX_ITEM_KEYS), MIN_ITEM_KEYS, int(lengths.sum()) // room + 1)
    num_parts = np.maximum(1, np.where(wanted > MAX_ITEM_KEYS, np.rint(lengths / chunk), lengths // chunk))
    num_parts = num_parts.astype(np.int64)
    size = -(-lengths // (num_parts * MIN_ITEM_KEYS)) * MIN_ITEM_KEYS
    num_parts = -(-lengths // size)
    num_items = int(num_parts.sum())
    firsts = np.cumsum(num_parts) - num_parts
    sequence = np.repeat(np.arange(len(rows)), num_parts)
    part = np.arange(num_items) - firsts[sequence]
    items = np.zeros((1 + num_items, ITEM_FIELDS), dtype=np.int32)
    items[0, 0] = num_items
    body = items[1:]
    body[:, 0], body[:, 1] = rows[sequence], table_rows[sequence]
    body[:, 2] = first_keys[sequence] + part * size[sequence]
    body[:, 3] = np.minimum(body[:, 2] + size[sequence], contexts[sequence])
    body[:, 4], body[:, 5], body[:, 6] = contexts[sequence], firsts[sequence], num_parts[sequence]
    return items


def prefill_tiles(
    rows: Int64Array, table_rows: Int64Array, lengths: Int64Array, contexts: Int64Array, tokens_per_tile: int
) -> Int32Array:
    """Tiles int32 [num_tiles, TILE_FIELDS] of sequences with `lengths` query rows from `rows` on.

    Those with most keys come first, so that short ones fill the gaps at the end.
    """
    num_tiles = -(-lengths // tokens_per_tile)
    sequence = np.repeat(np.arange(len(rows)), num_tiles)
    index = np.arange(len(sequence)) - (np.cumsum(num_tiles) - num_tiles)[sequence]
    start = index * tokens_per_tile
    tiles = np.empty((len(sequence), TILE_FIELDS), dtype=np.int32)
    tiles[:, 0] = rows[sequence] + start
    tiles[:, 1] = np.minimum(lengths[sequence] - start, tokens_per_tile)
    tiles[:, 2] = (contexts - lengths)[sequence] + start
    tiles[:, 3] = table_rows[sequence]
    return tiles[np.argsort(-(tiles[:, 1] + tiles[:, 2]), kind="stable")]
