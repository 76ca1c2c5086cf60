from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Error(_message.Message):
    __slots__ = ("code", "message", "param", "retry_after_s")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    param: str
    retry_after_s: float
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., param: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class SamplingParams(_message.Message):
    __slots__ = ("n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed", "stop", "stop_token_ids", "include_stop_str_in_output", "min_tokens", "max_tokens", "ignore_eos", "logprobs", "logit_bias", "skip_special_tokens", "detokenize")
    class LogitBiasEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    N_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_STOP_STR_IN_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_EOS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    SKIP_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DETOKENIZE_FIELD_NUMBER: _ClassVar[int]
    n: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    include_stop_str_in_output: bool
    min_tokens: int
    max_tokens: int
    ignore_eos: bool
    logprobs: int
    logit_bias: _containers.ScalarMap[int, float]
    skip_special_tokens: bool
    detokenize: bool
    def __init__(self, n: _Optional[int] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., include_stop_str_in_output: bool = ..., min_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., ignore_eos: bool = ..., logprobs: _Optional[int] = ..., logit_bias: _Optional[_Mapping[int, float]] = ..., skip_special_tokens: bool = ..., detokenize: bool = ...) -> None: ...

class KVGroup(_message.Message):
    __slots__ = ("group", "kind", "layers", "window")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    group: int
    kind: str
    layers: _containers.RepeatedScalarFieldContainer[int]
    window: int
    def __init__(self, group: _Optional[int] = ..., kind: _Optional[str] = ..., layers: _Optional[_Iterable[int]] = ..., window: _Optional[int] = ...) -> None: ...

class KVLayout(_message.Message):
    __slots__ = ("block_size", "num_kv_heads", "head_dim", "dtype", "groups")
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    block_size: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    groups: _containers.RepeatedCompositeFieldContainer[KVGroup]
    def __init__(self, block_size: _Optional[int] = ..., num_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., dtype: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[KVGroup, _Mapping]]] = ...) -> None: ...

class WorkerRecord(_message.Message):
    __slots__ = ("worker_id", "incarnation", "role", "model", "served_names", "content_id", "model_revision", "layout", "numerics", "algorithms", "max_sequence_tokens", "vocab_size", "num_blocks", "max_num_seqs", "device", "tasks", "grpc_address", "load_address", "protocol_min", "protocol_max", "is_deterministic", "transfer")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SERVED_NAMES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHMS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOAD_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MIN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MAX_FIELD_NUMBER: _ClassVar[int]
    IS_DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    role: str
    model: str
    served_names: _containers.RepeatedScalarFieldContainer[str]
    content_id: str
    model_revision: str
    layout: KVLayout
    numerics: str
    algorithms: _containers.RepeatedScalarFieldContainer[str]
    max_sequence_tokens: int
    vocab_size: int
    num_blocks: int
    max_num_seqs: int
    device: str
    tasks: _containers.RepeatedScalarFieldContainer[str]
    grpc_address: str
    load_address: str
    protocol_min: int
    protocol_max: int
    is_deterministic: bool
    transfer: TransferOffer
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., role: _Optional[str] = ..., model: _Optional[str] = ..., served_names: _Optional[_Iterable[str]] = ..., content_id: _Optional[str] = ..., model_revision: _Optional[str] = ..., layout: _Optional[_Union[KVLayout, _Mapping]] = ..., numerics: _Optional[str] = ..., algorithms: _Optional[_Iterable[str]] = ..., max_sequence_tokens: _Optional[int] = ..., vocab_size: _Optional[int] = ..., num_blocks: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., device: _Optional[str] = ..., tasks: _Optional[_Iterable[str]] = ..., grpc_address: _Optional[str] = ..., load_address: _Optional[str] = ..., protocol_min: _Optional[int] = ..., protocol_max: _Optional[int] = ..., is_deterministic: bool = ..., transfer: _Optional[_Union[TransferOffer, _Mapping]] = ...) -> None: ...

class KVShard(_message.Message):
    __slots__ = ("rank", "first_layer", "num_layers", "first_head", "num_heads", "num_blocks")
    RANK_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    FIRST_HEAD_FIELD_NUMBER: _ClassVar[int]
    NUM_HEADS_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    first_layer: int
    num_layers: int
    first_head: int
    num_heads: int
    num_blocks: int
    def __init__(self, rank: _Optional[int] = ..., first_layer: _Optional[int] = ..., num_layers: _Optional[int] = ..., first_head: _Optional[int] = ..., num_heads: _Optional[int] = ..., num_blocks: _Optional[int] = ...) -> None: ...

class TransferOffer(_message.Message):
    __slots__ = ("shards", "connectors", "nonce", "protocol_min", "protocol_max", "can_produce", "can_consume")
    class ConnectorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    CONNECTORS_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MIN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MAX_FIELD_NUMBER: _ClassVar[int]
    CAN_PRODUCE_FIELD_NUMBER: _ClassVar[int]
    CAN_CONSUME_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[KVShard]
    connectors: _containers.ScalarMap[str, str]
    nonce: bytes
    protocol_min: int
    protocol_max: int
    can_produce: bool
    can_consume: bool
    def __init__(self, shards: _Optional[_Iterable[_Union[KVShard, _Mapping]]] = ..., connectors: _Optional[_Mapping[str, str]] = ..., nonce: _Optional[bytes] = ..., protocol_min: _Optional[int] = ..., protocol_max: _Optional[int] = ..., can_produce: bool = ..., can_consume: bool = ...) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("service", "version", "config_json")
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    service: str
    version: str
    config_json: str
    def __init__(self, service: _Optional[str] = ..., version: _Optional[str] = ..., config_json: _Optional[str] = ...) -> None: ...
