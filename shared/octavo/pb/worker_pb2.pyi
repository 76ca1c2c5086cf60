from octavo.pb import common_pb2 as _common_pb2
from octavo.pb import transfer_pb2 as _transfer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToWorker(_message.Message):
    __slots__ = ("hello", "submit", "abort", "attach", "resend", "heartbeat", "pause")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    submit: Submit
    abort: Abort
    attach: Attach
    resend: Resend
    heartbeat: Heartbeat
    pause: Pause
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., submit: _Optional[_Union[Submit, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., attach: _Optional[_Union[Attach, _Mapping]] = ..., resend: _Optional[_Union[Resend, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ...) -> None: ...

class FromWorker(_message.Message):
    __slots__ = ("hello", "path_ack", "submit", "heartbeat", "attach")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PATH_ACK_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    hello: HelloReply
    path_ack: PathAck
    submit: SubmitReply
    heartbeat: HeartbeatReplyStates
    attach: AttachReply
    def __init__(self, hello: _Optional[_Union[HelloReply, _Mapping]] = ..., path_ack: _Optional[_Union[PathAck, _Mapping]] = ..., submit: _Optional[_Union[SubmitReply, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatReplyStates, _Mapping]] = ..., attach: _Optional[_Union[AttachReply, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("gateway_id", "gateway_incarnation", "protocol_min", "protocol_max")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MIN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MAX_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    gateway_incarnation: str
    protocol_min: int
    protocol_max: int
    def __init__(self, gateway_id: _Optional[str] = ..., gateway_incarnation: _Optional[str] = ..., protocol_min: _Optional[int] = ..., protocol_max: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("worker_id", "incarnation", "token_address", "curve_key", "session_token", "session_id", "lease_s", "protocol")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CURVE_KEY_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    token_address: str
    curve_key: bytes
    session_token: bytes
    session_id: str
    lease_s: float
    protocol: int
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., token_address: _Optional[str] = ..., curve_key: _Optional[bytes] = ..., session_token: _Optional[bytes] = ..., session_id: _Optional[str] = ..., lease_s: _Optional[float] = ..., protocol: _Optional[int] = ...) -> None: ...

class PathAck(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SequenceInput(_message.Message):
    __slots__ = ("index", "output_token_ids")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    index: int
    output_token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, index: _Optional[int] = ..., output_token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "attempt", "prompt_token_ids", "params", "sequences", "namespace", "priority", "deadline_unix_s", "transfer")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    prompt_token_ids: _containers.RepeatedScalarFieldContainer[int]
    params: _common_pb2.SamplingParams
    sequences: _containers.RepeatedCompositeFieldContainer[SequenceInput]
    namespace: bytes
    priority: int
    deadline_unix_s: float
    transfer: _transfer_pb2.TransferLeg
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., prompt_token_ids: _Optional[_Iterable[int]] = ..., params: _Optional[_Union[_common_pb2.SamplingParams, _Mapping]] = ..., sequences: _Optional[_Iterable[_Union[SequenceInput, _Mapping]]] = ..., namespace: _Optional[bytes] = ..., priority: _Optional[int] = ..., deadline_unix_s: _Optional[float] = ..., transfer: _Optional[_Union[_transfer_pb2.TransferLeg, _Mapping]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("request_id", "attempt", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    error: _common_pb2.Error
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("request_id", "attempt", "sequences")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("request_id", "attempt", "is_paused")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    is_paused: bool
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., is_paused: bool = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("request_id", "attempt", "next_index")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    next_index: _containers.RepeatedCompositeFieldContainer[SequenceIndex]
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., next_index: _Optional[_Iterable[_Union[SequenceIndex, _Mapping]]] = ...) -> None: ...

class AttachReply(_message.Message):
    __slots__ = ("request_id", "attempt", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    error: _common_pb2.Error
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., error: _Optional[_Union[_common_pb2.Error, _Mapping]] = ...) -> None: ...

class Resend(_message.Message):
    __slots__ = ("request_id", "attempt", "from_index")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    from_index: _containers.RepeatedCompositeFieldContainer[SequenceIndex]
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., from_index: _Optional[_Iterable[_Union[SequenceIndex, _Mapping]]] = ...) -> None: ...

class SequenceIndex(_message.Message):
    __slots__ = ("sequence", "index")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    index: int
    def __init__(self, sequence: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class HeartbeatReplyStates(_message.Message):
    __slots__ = ("number", "silent", "engine_age_s")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_AGE_S_FIELD_NUMBER: _ClassVar[int]
    number: int
    silent: _containers.RepeatedCompositeFieldContainer[SilentRequest]
    engine_age_s: float
    def __init__(self, number: _Optional[int] = ..., silent: _Optional[_Iterable[_Union[SilentRequest, _Mapping]]] = ..., engine_age_s: _Optional[float] = ...) -> None: ...

class SilentRequest(_message.Message):
    __slots__ = ("request_id", "attempt", "state", "num_output_tokens", "sent")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    state: str
    num_output_tokens: int
    sent: _containers.RepeatedCompositeFieldContainer[SequenceIndex]
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., state: _Optional[str] = ..., num_output_tokens: _Optional[int] = ..., sent: _Optional[_Iterable[_Union[SequenceIndex, _Mapping]]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker_id", "incarnation", "phase", "progress", "detail", "is_ready", "is_live", "engine_age_s", "num_running", "num_waiting", "num_blocks", "num_free_blocks", "num_sessions", "num_live_requests", "record", "num_retained_requests", "num_preemptions")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_AGE_S_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NUM_LIVE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    NUM_RETAINED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    phase: str
    progress: float
    detail: str
    is_ready: bool
    is_live: bool
    engine_age_s: float
    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    num_sessions: int
    num_live_requests: int
    record: _common_pb2.WorkerRecord
    num_retained_requests: int
    num_preemptions: int
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., phase: _Optional[str] = ..., progress: _Optional[float] = ..., detail: _Optional[str] = ..., is_ready: bool = ..., is_live: bool = ..., engine_age_s: _Optional[float] = ..., num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_blocks: _Optional[int] = ..., num_free_blocks: _Optional[int] = ..., num_sessions: _Optional[int] = ..., num_live_requests: _Optional[int] = ..., record: _Optional[_Union[_common_pb2.WorkerRecord, _Mapping]] = ..., num_retained_requests: _Optional[int] = ..., num_preemptions: _Optional[int] = ...) -> None: ...

class ProbeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeReply(_message.Message):
    __slots__ = ("incarnation", "is_live", "engine_age_s")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_AGE_S_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    is_live: bool
    engine_age_s: float
    def __init__(self, incarnation: _Optional[str] = ..., is_live: bool = ..., engine_age_s: _Optional[float] = ...) -> None: ...

class WorkerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
