"""Nouns ↔ protobuf: with `convert_public` and `convert_transfer`, the only module that touches generated messages."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.errors import ErrorDetail
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.kv.record import WorkerRecord
from octavo.pb import common_pb2, registry_pb2, router_pb2, worker_pb2
from octavo.request import Request, SequenceInput
from octavo.rpc import placement, session
from octavo.rpc.convert_transfer import leg_from_pb, leg_to_pb, offer_from_pb, offer_to_pb
from octavo.sampling_params import SamplingParams

_PARAMS_TUPLES = ("stop", "stop_token_ids")
_PARAMS_PLAIN = tuple(
    f.name for f in msgspec.structs.fields(SamplingParams) if f.name not in (*_PARAMS_TUPLES, "logit_bias")
)
_RECORD_PLAIN = tuple(
    f.name
    for f in msgspec.structs.fields(WorkerRecord)
    if f.name not in ("served_names", "layout", "algorithms", "tasks", "transfer")
)


# --- common ------------------------------------------------------------------------------------------------------


def error_to_pb(detail: ErrorDetail) -> common_pb2.Error:
    return common_pb2.Error(
        code=detail.code, message=detail.message, param=detail.param, retry_after_s=detail.retry_after_s
    )


def error_from_pb(pb: common_pb2.Error) -> ErrorDetail:
    return ErrorDetail(pb.code, pb.message, pb.param, pb.retry_after_s)


def error_to_bytes(detail: ErrorDetail) -> bytes:
    """An `Error` message as it travels in trailing metadata."""
    return bytes(error_to_pb(detail).SerializeToString())


def error_from_bytes(data: bytes) -> ErrorDetail:
    return error_from_pb(common_pb2.Error.FromString(data))


def params_to_pb(params: SamplingParams) -> common_pb2.SamplingParams:
    """Fields that are None stay unset."""
    out = common_pb2.SamplingParams(stop=params.stop, stop_token_ids=params.stop_token_ids)
    for name in _PARAMS_PLAIN:
        value = getattr(params, name)
        if value is not None:
            setattr(out, name, value)
    out.logit_bias.update(params.logit_bias)
    return out


def explicit_params(pb: common_pb2.SamplingParams) -> dict[str, Any]:
    """The fields that the sender set, by name, in the types of `SamplingParams`."""
    out: dict[str, Any] = {name: getattr(pb, name) for name in _PARAMS_PLAIN if pb.HasField(name)}
    for name in _PARAMS_TUPLES:
        if getattr(pb, name):
            out[name] = tuple(getattr(pb, name))
    if pb.logit_bias:
        out["logit_bias"] = dict(pb.logit_bias)
    return out


def params_from_pb(pb: common_pb2.SamplingParams) -> SamplingParams:
    """Between services every field is explicit: an unset `max_tokens` is None ("up to the context")."""
    return SamplingParams(**{"max_tokens": None, **explicit_params(pb)})


def record_to_pb(record: WorkerRecord) -> common_pb2.WorkerRecord:
    layout = record.layout
    groups = [common_pb2.KVGroup(group=g.group, kind=g.kind, layers=g.layers, window=g.window) for g in layout.groups]
    return common_pb2.WorkerRecord(
        served_names=record.served_names,
        algorithms=record.algorithms,
        tasks=record.tasks,
        layout=common_pb2.KVLayout(
            block_size=layout.block_size,
            num_kv_heads=layout.num_kv_heads,
            head_dim=layout.head_dim,
            dtype=layout.dtype,
            groups=groups,
        ),
        transfer=None if record.transfer is None else offer_to_pb(record.transfer),
        **{name: getattr(record, name) for name in _RECORD_PLAIN},
    )


def record_from_pb(pb: common_pb2.WorkerRecord) -> WorkerRecord:
    groups = tuple(GroupSpec(g.group, g.kind, tuple(g.layers), g.window) for g in pb.layout.groups)
    layout = KVLayout(pb.layout.block_size, pb.layout.num_kv_heads, pb.layout.head_dim, pb.layout.dtype, groups)
    return WorkerRecord(
        served_names=tuple(pb.served_names),
        algorithms=tuple(pb.algorithms),
        tasks=tuple(pb.tasks),
        layout=layout,
        transfer=offer_from_pb(pb.transfer) if pb.HasField("transfer") else None,
        **{name: getattr(pb, name) for name in _RECORD_PLAIN},
    )


def info_to_pb(info: placement.ServerInfo) -> common_pb2.ServerInfo:
    return common_pb2.ServerInfo(service=info.service, version=info.version, config_json=info.config_json)


def info_from_pb(pb: common_pb2.ServerInfo) -> placement.ServerInfo:
    return placement.ServerInfo(pb.service, pb.version, pb.config_json)


# --- sessions ------------------------------------------------------------------------------------------------------


def request_to_pb(request: Request) -> worker_pb2.Submit:
    return worker_pb2.Submit(
        request_id=request.request_id,
        attempt=request.attempt,
        prompt_token_ids=request.prompt_token_ids,
        params=params_to_pb(request.params),
        sequences=[
            worker_pb2.SequenceInput(index=s.index, output_token_ids=s.output_token_ids) for s in request.sequences
        ],
        namespace=request.namespace,
        priority=request.priority,
        deadline_unix_s=request.deadline_unix_s,
        transfer=None if request.transfer is None else leg_to_pb(request.transfer, record_to_pb),
    )


def request_from_pb(pb: worker_pb2.Submit) -> Request:
    return Request(
        pb.request_id,
        pb.attempt,
        list(pb.prompt_token_ids),
        params_from_pb(pb.params),
        [SequenceInput(s.index, list(s.output_token_ids)) for s in pb.sequences],
        pb.namespace,
        pb.priority,
        pb.deadline_unix_s,
        leg_from_pb(pb.transfer, record_from_pb) if pb.HasField("transfer") else None,
    )


def _indexes_to_pb(indexes: dict[int, int]) -> list[worker_pb2.SequenceIndex]:
    return [worker_pb2.SequenceIndex(sequence=s, index=i) for s, i in indexes.items()]


def _indexes_from_pb(pbs: Any) -> dict[int, int]:
    return {pb.sequence: pb.index for pb in pbs}


def to_worker_pb(message: session.ToWorkerMessage) -> worker_pb2.ToWorker:
    match message:
        case session.Submit(request=request):
            return worker_pb2.ToWorker(submit=request_to_pb(request))
        case session.Heartbeat(number=number):
            return worker_pb2.ToWorker(heartbeat=worker_pb2.Heartbeat(number=number))
        case session.Abort(request_id=rid, attempt=attempt, sequences=sequences):
            return worker_pb2.ToWorker(abort=worker_pb2.Abort(request_id=rid, attempt=attempt, sequences=sequences))
        case session.Pause():
            return worker_pb2.ToWorker(pause=worker_pb2.Pause(**msgspec.structs.asdict(message)))
        case session.Attach(request_id=rid, attempt=attempt, next_index=indexes):
            attach = worker_pb2.Attach(request_id=rid, attempt=attempt, next_index=_indexes_to_pb(indexes))
            return worker_pb2.ToWorker(attach=attach)
        case session.Resend(request_id=rid, attempt=attempt, from_index=indexes):
            resend = worker_pb2.Resend(request_id=rid, attempt=attempt, from_index=_indexes_to_pb(indexes))
            return worker_pb2.ToWorker(resend=resend)
        case session.Hello():
            return worker_pb2.ToWorker(hello=worker_pb2.Hello(**msgspec.structs.asdict(message)))


def to_worker_from_pb(pb: worker_pb2.ToWorker) -> session.ToWorkerMessage | None:
    """None for a kind that this version does not know."""
    match pb.WhichOneof("kind"):
        case "submit":
            return session.Submit(request_from_pb(pb.submit))
        case "heartbeat":
            return session.Heartbeat(pb.heartbeat.number)
        case "abort":
            return session.Abort(pb.abort.request_id, pb.abort.attempt, tuple(pb.abort.sequences))
        case "pause":
            return session.Pause(pb.pause.request_id, pb.pause.attempt, pb.pause.is_paused)
        case "attach":
            return session.Attach(pb.attach.request_id, pb.attach.attempt, _indexes_from_pb(pb.attach.next_index))
        case "resend":
            return session.Resend(pb.resend.request_id, pb.resend.attempt, _indexes_from_pb(pb.resend.from_index))
        case "hello":
            hello = pb.hello
            return session.Hello(hello.gateway_id, hello.gateway_incarnation, hello.protocol_min, hello.protocol_max)
    return None


def _reply_to_pb(cls: Any, message: session.SubmitReply | session.AttachReply) -> Any:
    error = None if message.error is None else error_to_pb(message.error)
    return cls(request_id=message.request_id, attempt=message.attempt, error=error)


def from_worker_pb(message: session.FromWorkerMessage) -> worker_pb2.FromWorker:
    match message:
        case session.SubmitReply():
            return worker_pb2.FromWorker(submit=_reply_to_pb(worker_pb2.SubmitReply, message))
        case session.AttachReply():
            return worker_pb2.FromWorker(attach=_reply_to_pb(worker_pb2.AttachReply, message))
        case session.PathAck():
            return worker_pb2.FromWorker(path_ack=worker_pb2.PathAck())
        case session.HelloReply():
            return worker_pb2.FromWorker(hello=worker_pb2.HelloReply(**msgspec.structs.asdict(message)))
        case session.HeartbeatStates():
            silent = [
                worker_pb2.SilentRequest(
                    request_id=s.request_id,
                    attempt=s.attempt,
                    state=s.state,
                    num_output_tokens=s.num_output_tokens,
                    sent=_indexes_to_pb(s.sent),
                )
                for s in message.silent
            ]
            states = worker_pb2.HeartbeatReplyStates(
                number=message.number, silent=silent, engine_age_s=message.engine_age_s
            )
            return worker_pb2.FromWorker(heartbeat=states)


def from_worker_from_pb(pb: worker_pb2.FromWorker) -> session.FromWorkerMessage | None:
    """None for a kind that this version does not know."""
    kind = pb.WhichOneof("kind")
    match kind:
        case "submit" | "attach":
            reply = getattr(pb, kind)
            cls = session.SubmitReply if kind == "submit" else session.AttachReply
            error = error_from_pb(reply.error) if reply.HasField("error") else None
            return cls(reply.request_id, reply.attempt, error)
        case "path_ack":
            return session.PathAck()
        case "hello":
            names = (f.name for f in msgspec.structs.fields(session.HelloReply))
            return session.HelloReply(**{name: getattr(pb.hello, name) for name in names})
        case "heartbeat":
            silent = tuple(
                session.SilentRequest(s.request_id, s.attempt, s.state, s.num_output_tokens, _indexes_from_pb(s.sent))
                for s in pb.heartbeat.silent
            )
            return session.HeartbeatStates(pb.heartbeat.number, pb.heartbeat.engine_age_s, silent)
    return None


def status_to_pb(status: placement.WorkerStatus) -> worker_pb2.WorkerStatus:
    fields = {f.name: getattr(status, f.name) for f in msgspec.structs.fields(placement.WorkerStatus)}
    record = fields.pop("record")
    return worker_pb2.WorkerStatus(record=None if record is None else record_to_pb(record), **fields)


def status_from_pb(pb: worker_pb2.WorkerStatus) -> placement.WorkerStatus:
    names = [f.name for f in msgspec.structs.fields(placement.WorkerStatus) if f.name != "record"]
    record = record_from_pb(pb.record) if pb.HasField("record") else None
    return placement.WorkerStatus(record=record, **{name: getattr(pb, name) for name in names})


def probe_to_pb(probe: placement.ProbeResult) -> worker_pb2.ProbeReply:
    return worker_pb2.ProbeReply(**msgspec.structs.asdict(probe))


def probe_from_pb(pb: worker_pb2.ProbeReply) -> placement.ProbeResult:
    return placement.ProbeResult(pb.incarnation, pb.is_live, pb.engine_age_s)


# --- router and registry ---------------------------------------------------------------------------------------------


def place_to_pb(request: placement.PlaceRequest) -> router_pb2.PlaceRequest:
    return router_pb2.PlaceRequest(**msgspec.structs.asdict(request))


def place_from_pb(pb: router_pb2.PlaceRequest) -> placement.PlaceRequest:
    names = (f.name for f in msgspec.structs.fields(placement.PlaceRequest))
    fields = {name: getattr(pb, name) for name in names}
    fields["exclude"] = tuple(pb.exclude)
    return placement.PlaceRequest(**fields)


def _leg_to_pb(leg: placement.Leg) -> router_pb2.Leg:
    return router_pb2.Leg(worker=record_to_pb(leg.worker), kv_sources=leg.kv_sources)


def _leg_from_pb(pb: router_pb2.Leg) -> placement.Leg:
    return placement.Leg(record_from_pb(pb.worker), tuple(pb.kv_sources))


def placement_to_pb(answer: placement.Placement) -> router_pb2.PlaceReply:
    return router_pb2.PlaceReply(
        path=answer.path,
        decode=_leg_to_pb(answer.decode),
        prefill=None if answer.prefill is None else _leg_to_pb(answer.prefill),
        spares=[_leg_to_pb(leg) for leg in answer.spares],
        cost=[router_pb2.CostTerm(name=c.name, ms=c.ms) for c in answer.cost],
        policy=answer.policy,
        predicted_cached_tokens=answer.predicted_cached_tokens,
    )


def placement_from_pb(pb: router_pb2.PlaceReply) -> placement.Placement:
    return placement.Placement(
        path=pb.path,
        decode=_leg_from_pb(pb.decode),
        prefill=_leg_from_pb(pb.prefill) if pb.HasField("prefill") else None,
        spares=tuple(_leg_from_pb(leg) for leg in pb.spares),
        cost=tuple(placement.CostTerm(c.name, c.ms) for c in pb.cost),
        policy=pb.policy,
        predicted_cached_tokens=pb.predicted_cached_tokens,
    )


def fleet_to_pb(fleet: placement.Fleet) -> router_pb2.FleetReply:
    members = []
    for member in fleet.members:
        fields = {f.name: getattr(member, f.name) for f in msgspec.structs.fields(placement.FleetMember)}
        members.append(router_pb2.FleetMember(record=record_to_pb(fields.pop("record")), **fields))
    return router_pb2.FleetReply(members=members, age_s=fleet.age_s)


def fleet_from_pb(pb: router_pb2.FleetReply) -> placement.Fleet:
    names = [f.name for f in msgspec.structs.fields(placement.FleetMember) if f.name != "record"]
    members = tuple(
        placement.FleetMember(record=record_from_pb(m.record), **{name: getattr(m, name) for name in names})
        for m in pb.members
    )
    return placement.Fleet(members, pb.age_s)


def register_to_pb(record: WorkerRecord) -> registry_pb2.RegisterRequest:
    return registry_pb2.RegisterRequest(record=record_to_pb(record))
