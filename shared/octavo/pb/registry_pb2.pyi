from octavo.pb import common_pb2 as _common_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterRequest(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _common_pb2.WorkerRecord
    def __init__(self, record: _Optional[_Union[_common_pb2.WorkerRecord, _Mapping]] = ...) -> None: ...

class RegisterReply(_message.Message):
    __slots__ = ("heartbeat_period_s",)
    HEARTBEAT_PERIOD_S_FIELD_NUMBER: _ClassVar[int]
    heartbeat_period_s: float
    def __init__(self, heartbeat_period_s: _Optional[float] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker_id", "incarnation", "is_ready")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    IS_READY_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    is_ready: bool
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., is_ready: bool = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("needs_record",)
    NEEDS_RECORD_FIELD_NUMBER: _ClassVar[int]
    needs_record: bool
    def __init__(self, needs_record: bool = ...) -> None: ...

class DeregisterRequest(_message.Message):
    __slots__ = ("worker_id", "incarnation")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class DeregisterReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
