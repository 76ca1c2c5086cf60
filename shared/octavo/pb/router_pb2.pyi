from octavo.pb import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PlaceRequest(_message.Message):
    __slots__ = ("request_id", "attempt", "gateway_incarnation", "model", "task", "namespace", "chain", "num_prompt_tokens", "max_tokens", "n", "adapter", "session_key", "priority", "deadline_unix_s", "exclude", "numerics")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_S_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    gateway_incarnation: str
    model: str
    task: str
    namespace: bytes
    chain: bytes
    num_prompt_tokens: int
    max_tokens: int
    n: int
    adapter: str
    session_key: str
    priority: int
    deadline_unix_s: float
    exclude: _containers.RepeatedScalarFieldContainer[str]
    numerics: str
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., gateway_incarnation: _Optional[str] = ..., model: _Optional[str] = ..., task: _Optional[str] = ..., namespace: _Optional[bytes] = ..., chain: _Optional[bytes] = ..., num_prompt_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., n: _Optional[int] = ..., adapter: _Optional[str] = ..., session_key: _Optional[str] = ..., priority: _Optional[int] = ..., deadline_unix_s: _Optional[float] = ..., exclude: _Optional[_Iterable[str]] = ..., numerics: _Optional[str] = ...) -> None: ...

class CostTerm(_message.Message):
    __slots__ = ("name", "ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ms: float
    def __init__(self, name: _Optional[str] = ..., ms: _Optional[float] = ...) -> None: ...

class Leg(_message.Message):
    __slots__ = ("worker", "kv_sources")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    KV_SOURCES_FIELD_NUMBER: _ClassVar[int]
    worker: _common_pb2.WorkerRecord
    kv_sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker: _Optional[_Union[_common_pb2.WorkerRecord, _Mapping]] = ..., kv_sources: _Optional[_Iterable[str]] = ...) -> None: ...

class PlaceReply(_message.Message):
    __slots__ = ("path", "decode", "prefill", "spares", "cost", "policy", "predicted_cached_tokens")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    path: str
    decode: Leg
    prefill: Leg
    spares: _containers.RepeatedCompositeFieldContainer[Leg]
    cost: _containers.RepeatedCompositeFieldContainer[CostTerm]
    policy: str
    predicted_cached_tokens: int
    def __init__(self, path: _Optional[str] = ..., decode: _Optional[_Union[Leg, _Mapping]] = ..., prefill: _Optional[_Union[Leg, _Mapping]] = ..., spares: _Optional[_Iterable[_Union[Leg, _Mapping]]] = ..., cost: _Optional[_Iterable[_Union[CostTerm, _Mapping]]] = ..., policy: _Optional[str] = ..., predicted_cached_tokens: _Optional[int] = ...) -> None: ...

class FleetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FleetMember(_message.Message):
    __slots__ = ("record", "is_ready", "heartbeat_age_s", "num_in_flight", "num_running", "num_waiting", "num_free_blocks")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    record: _common_pb2.WorkerRecord
    is_ready: bool
    heartbeat_age_s: float
    num_in_flight: int
    num_running: int
    num_waiting: int
    num_free_blocks: int
    def __init__(self, record: _Optional[_Union[_common_pb2.WorkerRecord, _Mapping]] = ..., is_ready: bool = ..., heartbeat_age_s: _Optional[float] = ..., num_in_flight: _Optional[int] = ..., num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_free_blocks: _Optional[int] = ...) -> None: ...

class FleetReply(_message.Message):
    __slots__ = ("members", "age_s")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[FleetMember]
    age_s: float
    def __init__(self, members: _Optional[_Iterable[_Union[FleetMember, _Mapping]]] = ..., age_s: _Optional[float] = ...) -> None: ...

class RouterInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
