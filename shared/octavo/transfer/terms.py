"""`incompatibilities`: why two workers cannot move KV between them.  Pure; used at hello and by the router."""

from __future__ import annotations

import msgspec

from octavo.kv.offer import TransferOffer
from octavo.kv.record import WorkerRecord
from octavo.transfer.message import Terms


def terms_of(record: WorkerRecord, offer: TransferOffer) -> Terms:
    """The terms of a worker.  The layout of a record is one rank's, that of terms the whole model's."""
    num_kv_heads = max(shard.first_head + shard.num_heads for shard in offer.shards)
    return Terms(
        record.worker_id,
        record.incarnation,
        record.content_id,
        msgspec.structs.replace(record.layout, num_kv_heads=num_kv_heads),
        offer.shards,
        record.algorithms,
        offer.protocol_min,
        offer.protocol_max,
        offer.connectors,
        offer.nonce,
    )


def incompatibilities(mine: Terms, theirs: Terms) -> list[str]:
    """Every reason, empty when pages may move.  Block size, shards and connectors may differ."""
    out = []
    if mine.content_id != theirs.content_id:
        out.append(f"content_id: {theirs.content_id} there, {mine.content_id} here; weights must be the same")
    if mine.protocol_max < theirs.protocol_min or theirs.protocol_max < mine.protocol_min:
        out.append(
            f"protocol: {theirs.protocol_min} to {theirs.protocol_max} there, "
            f"{mine.protocol_min} to {mine.protocol_max} here; one version must be common"
        )
    a, b = mine.layout, theirs.layout
    for name in ("dtype", "num_kv_heads", "head_dim"):
        if getattr(a, name) != getattr(b, name):
            out.append(f"layout.{name}: {getattr(b, name)} there, {getattr(a, name)} here; must be equal")
    if a.groups != b.groups:
        out.append("layout.groups: the groups of layers differ; must be equal")
    missing = sorted(set(mine.algorithms) ^ set(theirs.algorithms))
    if missing:
        out.append(f"algorithms: {', '.join(missing)} on one side only; must be equal")
    return out
