"""What a worker offers to peers that move KV: part of its capability record."""

from __future__ import annotations

import msgspec

TRANSFER_VERSION = 1
TRANSFER_MIN_VERSION = 1


class Shard(msgspec.Struct, frozen=True, array_like=True):
    """What one rank's pool holds of every group: layers and KV heads, numbered over the whole model.

    Layers count from 0 within the group.  `num_blocks` is the size of that rank's pool.
    """

    rank: int
    first_layer: int
    num_layers: int
    first_head: int
    num_heads: int
    num_blocks: int


class TransferOffer(msgspec.Struct, frozen=True, array_like=True):
    """How a worker's KV can be moved.

    `connectors` maps the name of each connector, and `control`, to an address; `nonce` stands in the worker's shared
    memory, where only processes of the same host can read it.  `can_produce` and `can_consume` are the directions that
    it offers.
    """

    shards: tuple[Shard, ...]
    connectors: dict[str, str]
    nonce: bytes = b""
    protocol_min: int = TRANSFER_MIN_VERSION
    protocol_max: int = TRANSFER_VERSION
    can_produce: bool = True
    can_consume: bool = True
