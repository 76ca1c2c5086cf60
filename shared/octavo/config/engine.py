"""Settings of an engine: model, cache, scheduler, parallel sizes, device."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.config.option import option

DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class ModelConfig:
    """Which model, from where, in what precision."""

    model: str = option(
        "",
        "Model: a demo name, a Hugging Face id, repo:QUANT for GGUF, a local folder or .gguf file.",
        is_positional=True,
        metavar="MODEL",
    )
    tokenizer: str = option("", "Tokenizer folder, file or id; default: the model's own.")
    revision: str = option("", "Revision (branch, tag or commit) on the model hub; default: the hub's main one.")
    served_model_name: tuple[str, ...] = option(
        (), "Names under which the API serves the model; default: MODEL as given."
    )
    dtype: str = option(
        "auto",
        "Precision of weights and activations; auto: bfloat16 where the device has it, else float32.",
        choices=DTYPES,
    )
    load_format: str = option(
        "auto",
        "Where weights come from; dummy: random ones from --seed.",
        choices=("auto", "safetensors", "gguf", "dummy"),
    )
    max_model_len: int = option(
        0, "Longest sequence (prompt and output) in tokens; 0: the model's own limit.", minimum=0
    )
    rope_scaling: str = option(
        "", 'RoPE scaling as JSON, e.g. \'{"rope_type":"yarn","factor":4}\'; replaces the model\'s own.', metavar="JSON"
    )
    generation_config: str = option("auto", "Default sampling settings: auto (the model's folder), none, or a folder.")
    seed: int = option(0, "Seed of dummy weights; sampling seeds are drawn per request.", minimum=0)
    trust_remote_code: bool = option(False, "Refused: Octavo runs no code that comes with a model.")
    quantization: str = option(
        "auto", "Quantization method of the weights; auto: what the checkpoint says.", choices=("auto", "none")
    )


@dataclass(frozen=True)
class CacheConfig:
    """The KV block pool and the prefix cache."""

    block_size: int = option(0, "Tokens per KV block: 16, 32, 64 or 128; 0: 64 on GPUs, 32 on CPU.", minimum=0)
    kv_cache_memory_bytes: int = option(
        0, "Bytes of the KV pool; 0: on CPU min(4 GiB, a quarter of free memory ÷ workers).", minimum=0
    )
    num_gpu_blocks_override: int = option(0, "Number of KV blocks, whatever the memory; 0: computed.", minimum=0)
    gpu_memory_utilization: float = option(
        0.9, "Share of GPU memory that weights and KV may take.", minimum=0.01, maximum=1.0
    )
    kv_cache_dtype: str = option("auto", "Precision of the KV cache; auto: that of the model.", choices=DTYPES)
    enable_prefix_caching: bool = option(True, "Reuse the KV of prompts that begin alike.")


@dataclass(frozen=True)
class SchedulerConfig:
    """How steps are filled."""

    max_num_seqs: int = option(64, "Sequences that run at once.", minimum=1)
    max_num_batched_tokens: int = option(0, "Tokens per step; 0: 512 on CPU, 8192 on GPUs.", minimum=0)
    max_num_waiting: int = option(1024, "Requests that may wait in a worker; more are refused with 429.", minimum=0)
    scheduling_policy: str = option("fcfs", "Order of waiting requests.", choices=("fcfs", "priority"))
    enable_chunked_prefill: bool = option(True, "Split long prompts over several steps.")


@dataclass(frozen=True)
class ParallelConfig:
    """Ranks of one worker."""

    tensor_parallel_size: int = option(1, "Devices that share every layer.", aliases=("-tp",), minimum=1)
    pipeline_parallel_size: int = option(1, "Devices that share the layers.", aliases=("-pp",), minimum=1)
    data_parallel_size: int = option(1, "Copies of the engine.", aliases=("-dp",), minimum=1)


@dataclass(frozen=True)
class DeviceConfig:
    """Which device and which kernels."""

    device: str = option(
        "auto", "Device; auto: the first found of cuda, rocm, cpu.", choices=("auto", "cuda", "rocm", "cpu")
    )
    threads: int = option(
        0, "Compute threads of the engine on CPU; 0: cores ÷ engines on this host.", minimum=0, maximum=1024
    )
    attention_backend: str = option("auto", "Attention backend by name; auto: the first that can run.")
    enforce_eager: bool = option(False, "Launch every kernel of a decode step by itself, without CUDA graphs.")


@dataclass(frozen=True)
class EngineConfig:
    """Everything an engine process needs."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
