"""A worker's capability record: what it says of itself when it registers, and what peers compare at hello."""

from __future__ import annotations

import msgspec

from octavo.kv.layout import KVLayout
from octavo.kv.offer import TransferOffer

PROTOCOL_VERSION = 1
PROTOCOL_MIN_VERSION = 1


class WorkerRecord(msgspec.Struct, frozen=True, array_like=True):
    """Capability record of one incarnation.

    `content_id` names the weights (hub revision, or sha256 over headers, sizes and sampled pages);
    `numerics` is the numerics fingerprint (equal fingerprints give equal bits); `algorithms` the ids of the
    hash, noise and digest algorithms.  `max_sequence_tokens` is the longest sequence the pool can hold.  A record
    without `transfer` is that of a worker that moves no KV.
    """

    worker_id: str
    incarnation: str
    role: str
    model: str
    served_names: tuple[str, ...]
    content_id: str
    model_revision: str
    layout: KVLayout
    numerics: str
    algorithms: tuple[str, ...]
    max_sequence_tokens: int
    vocab_size: int
    num_blocks: int
    max_num_seqs: int
    device: str
    tasks: tuple[str, ...] = ("generate",)
    grpc_address: str = ""
    load_address: str = ""
    protocol_min: int = PROTOCOL_MIN_VERSION
    protocol_max: int = PROTOCOL_VERSION
    is_deterministic: bool = False
    transfer: TransferOffer | None = None
