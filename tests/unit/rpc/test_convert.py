"""Every noun survives protobuf unchanged."""

from __future__ import annotations

import msgspec
import pytest

from octavo.errors import ErrorDetail
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.kv.offer import Shard, TransferOffer
from octavo.kv.record import WorkerRecord
from octavo.request import Request, SequenceInput, TransferLeg, TransferPeer
from octavo.rpc import convert, placement, session
from octavo.sampling_params import SamplingParams

LAYOUT = KVLayout(32, 2, 16, "float32", (GroupSpec(0, "full", (0, 1)), GroupSpec(1, "sliding", (2, 3), 128)))
RECORD = WorkerRecord(
    worker_id="w",
    incarnation="ff",
    role="both",
    model="m",
    served_names=("m", "n"),
    content_id="c",
    model_revision="r",
    layout=LAYOUT,
    numerics="x",
    algorithms=("a", "b"),
    max_sequence_tokens=512,
    vocab_size=100,
    num_blocks=7,
    max_num_seqs=8,
    device="cpu",
    grpc_address="127.0.0.1:1",
    load_address="tcp://127.0.0.1:2",
    is_deterministic=True,
    transfer=TransferOffer(
        (Shard(0, 0, 2, 0, 1, 7), Shard(1, 0, 2, 1, 1, 7)), {"control": "tcp://x", "shm": "y"}, b"n", can_produce=False
    ),
)
PARAMS = SamplingParams(
    n=2,
    temperature=0.0,
    seed=2**64 - 1,
    stop=("a", "é"),
    stop_token_ids=(3,),
    max_tokens=None,
    logprobs=0,
    logit_bias={5: -1.5},
    detokenize=False,
)
REQUEST = Request(
    "r1", 3, [1, 2, 3], PARAMS, [SequenceInput(0, [9]), SequenceInput(1)], b"\x00ns", -2, deadline_unix_s=12.5
)
LEG = TransferLeg("t1", "consume", [TransferPeer(RECORD), TransferPeer(RECORD, is_request=False)])
ERROR = ErrorDetail("busy", "queue is full", "n", 1.5)

TO_WORKER = [
    session.Hello("g", "i", 1, 2),
    session.Submit(REQUEST),
    session.Submit(msgspec.structs.replace(REQUEST, transfer=LEG)),
    session.Abort("r", 1),
    session.Abort("r", 1, (0, 2)),
    session.Pause("r", 1, True),
    session.Attach("r", 1, {0: 5, 1: 0}),
    session.Resend("r", 1, {0: 5}),
    session.Heartbeat(7),
]
FROM_WORKER = [
    session.HelloReply("w", "i", "tcp://x", b"\x00" * 16, "s", 10.0, 1),
    session.PathAck(),
    session.SubmitReply("r", 1),
    session.SubmitReply("r", 1, ERROR),
    session.AttachReply("r", 1, ERROR),
    session.HeartbeatStates(7, 0.5, (session.SilentRequest("r", 1, "queued", 3, {0: 3}),)),
]


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda m: type(m).__name__)
def test_messages_to_a_worker(message):
    assert convert.to_worker_from_pb(convert.to_worker_pb(message)) == message


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda m: type(m).__name__)
def test_messages_from_a_worker(message):
    assert convert.from_worker_from_pb(convert.from_worker_pb(message)) == message


def test_default_params():
    assert convert.params_from_pb(convert.params_to_pb(SamplingParams())) == SamplingParams()


def test_explicit_params_names_only_what_was_set():
    pb = convert.params_to_pb(SamplingParams())
    pb.Clear()
    pb.temperature = 0.0
    assert convert.explicit_params(pb) == {"temperature": 0.0}


def test_record_and_placement():
    leg = placement.Leg(RECORD, ("w2",))
    answer = placement.Placement(path="remote", decode=leg, prefill=leg, spares=(leg,), policy="p")
    assert convert.placement_from_pb(convert.placement_to_pb(answer)) == answer
    local = placement.Placement(path="local", decode=leg, cost=(placement.CostTerm("queue", 1.5),))
    assert convert.placement_from_pb(convert.placement_to_pb(local)) == local


def test_place_request():
    ask = placement.PlaceRequest(
        request_id="r",
        attempt=1,
        gateway_incarnation="g",
        model="m",
        num_prompt_tokens=5,
        chain=b"\x01" * 16,
        exclude=("a", "b"),
        priority=-1,
    )
    assert convert.place_from_pb(convert.place_to_pb(ask)) == ask


def test_fleet_status_probe_and_info():
    fleet = placement.Fleet((placement.FleetMember(record=RECORD, is_ready=True, heartbeat_age_s=0.5),), 3.0)
    assert convert.fleet_from_pb(convert.fleet_to_pb(fleet)) == fleet
    for record in (None, RECORD):
        status = placement.WorkerStatus(worker_id="w", incarnation="i", phase="ready", record=record)
        assert convert.status_from_pb(convert.status_to_pb(status)) == status
    probe = placement.ProbeResult("i", True, 0.25)
    assert convert.probe_from_pb(convert.probe_to_pb(probe)) == probe
    info = placement.ServerInfo("router", "1", "{}")
    assert convert.info_from_pb(convert.info_to_pb(info)) == info


def test_error_bytes():
    assert convert.error_from_bytes(convert.error_to_bytes(ERROR)) == ERROR
