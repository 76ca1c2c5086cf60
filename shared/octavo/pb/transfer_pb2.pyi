from octavo.pb import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransferPeer(_message.Message):
    __slots__ = ("record", "is_request")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    IS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    record: _common_pb2.WorkerRecord
    is_request: bool
    def __init__(self, record: _Optional[_Union[_common_pb2.WorkerRecord, _Mapping]] = ..., is_request: bool = ...) -> None: ...

class TransferLeg(_message.Message):
    __slots__ = ("transfer_id", "side", "peers")
    TRANSFER_ID_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    transfer_id: str
    side: str
    peers: _containers.RepeatedCompositeFieldContainer[TransferPeer]
    def __init__(self, transfer_id: _Optional[str] = ..., side: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[TransferPeer, _Mapping]]] = ...) -> None: ...
