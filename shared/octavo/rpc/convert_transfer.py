"""Transfer offers and legs ↔ protobuf."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from octavo.kv.offer import Shard, TransferOffer
from octavo.kv.record import WorkerRecord
from octavo.pb import common_pb2, transfer_pb2
from octavo.request import TransferLeg, TransferPeer

_SHARD_FIELDS = tuple(f.name for f in msgspec.structs.fields(Shard))
_OFFER_PLAIN = tuple(f.name for f in msgspec.structs.fields(TransferOffer) if f.name not in ("shards", "connectors"))


def offer_to_pb(offer: TransferOffer) -> common_pb2.TransferOffer:
    return common_pb2.TransferOffer(
        shards=[common_pb2.KVShard(**msgspec.structs.asdict(shard)) for shard in offer.shards],
        connectors=offer.connectors,
        **{name: getattr(offer, name) for name in _OFFER_PLAIN},
    )


def offer_from_pb(pb: common_pb2.TransferOffer) -> TransferOffer:
    return TransferOffer(
        shards=tuple(Shard(**{name: getattr(shard, name) for name in _SHARD_FIELDS}) for shard in pb.shards),
        connectors=dict(pb.connectors),
        **{name: getattr(pb, name) for name in _OFFER_PLAIN},
    )


def leg_to_pb(
    leg: TransferLeg, record_to_pb: Callable[[WorkerRecord], common_pb2.WorkerRecord]
) -> transfer_pb2.TransferLeg:
    peers = [transfer_pb2.TransferPeer(record=record_to_pb(p.record), is_request=p.is_request) for p in leg.peers]
    return transfer_pb2.TransferLeg(transfer_id=leg.transfer_id, side=leg.side, peers=peers)


def leg_from_pb(
    pb: transfer_pb2.TransferLeg, record_from_pb: Callable[[common_pb2.WorkerRecord], WorkerRecord]
) -> TransferLeg:
    return TransferLeg(
        pb.transfer_id, pb.side, [TransferPeer(record_from_pb(p.record), p.is_request) for p in pb.peers]
    )
