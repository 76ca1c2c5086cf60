"""`build_engine`: from settings and model files to a running engine core and its capability record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import torch

from octavo.config.engine import EngineConfig, ParallelConfig
from octavo.engine.core import EngineCore
from octavo.engine.kv_memory import count_blocks, pool_bytes, resolve_block_size
from octavo.engine.model.base import CausalLM
from octavo.engine.numerics import ALGORITHM_IDS, fingerprint
from octavo.engine.parallel.comm import Comm, GlooComm
from octavo.engine.parallel.executor import make_executor
from octavo.engine.parallel.launch import start_ranks
from octavo.engine.platform import TORCH_DTYPES, detect_platform, instruction_set, num_threads, resolve_dtype
from octavo.engine.rank_spec import RankSpec, build_runner, create_rank_model, load_rank_weights, select_backends
from octavo.engine.runner.step_graph import decode_sizes, mixed_sizes
from octavo.engine.scheduler import Scheduler
from octavo.engine.scheduler_spec import SchedulerSpec
from octavo.errors import InvalidInput, Problem, show
from octavo.hub.files import ModelFiles
from octavo.kernels.attention import AttentionBackend
from octavo.kernels.cpu import native
from octavo.kernels.cpu.merge import CHUNK_TOKENS
from octavo.kernels.self_check import determinism_check
from octavo.kernels.triton.platform import triton_version
from octavo.kv.layout import KVLayout
from octavo.kv.record import WorkerRecord
from octavo.obs.log import get_logger

log = get_logger(__name__)

Beat = Callable[[], None]
Notify = Callable[[str, float, float, str], None]
"""(phase, progress from 0 to 1, time limit in seconds with 0 for the caller's default, detail)."""

DEFAULT_STEP_TOKENS = {"cpu": 512}
GPU_STEP_TOKENS = 8192
WORKING_BYTES = 1 << 30
GRAPH_BYTES = 32 << 20
CAPTURE_LIMIT_S = 300.0
"""Compiling kernels that no cache has, and capturing decode steps."""


def _no_beat() -> None:
    return None


def _no_notice(phase: str, progress: float, limit_s: float, detail: str) -> None:
    return None


def build_engine(
    config: EngineConfig, files: ModelFiles, *, beat: Beat = _no_beat, notify: Notify = _no_notice
) -> tuple[EngineCore, WorkerRecord]:
    """The engine for `files`, and its record without what the worker knows: id, incarnation, role, addresses.

    Raises `InvalidInput` that names the setting at fault; sizes and precisions are checked before weights are read.
    """
    _check_parallel(config.parallel)
    return build_ranks(config, files, num_ranks=1, beat=beat, notify=notify)


def build_ranks(
    config: EngineConfig,
    files: ModelFiles,
    *,
    num_ranks: int,
    beat: Beat = _no_beat,
    notify: Notify = _no_notice,
) -> tuple[EngineCore, WorkerRecord]:
    """`build_engine` over `num_ranks` ranks of this host: rank 0 here, the others as child processes over gloo."""
    spec = resolve_spec(config, files, num_ranks)
    torch.set_num_threads(spec.num_threads)
    if spec.platform == "cpu":
        notify("loading", 0.0, 0.0, "kernels")
        native.set_num_threads(spec.num_threads)
    comm = GlooComm(0, num_ranks) if num_ranks > 1 else Comm()
    model = create_rank_model(spec, comm)
    layout = spec.layout_of(model)
    backends = select_backends(spec, model)
    if spec.platform == "cpu":
        spec = _with_blocks(spec, config, model, layout)
    ranks = start_ranks(spec, comm) if isinstance(comm, GlooComm) else []
    try:

        def progress(fraction: float) -> None:
            beat()
            notify("loading", 0.5 + fraction / 2, 0.0, "weights")

        load_rank_weights(spec, model, progress)
        if not spec.num_blocks:
            spec = _with_blocks(spec, config, model, layout)
        findings = _check_determinism(spec, model, backends)
        if spec.platform != "cpu":
            notify("loading", 1.0, CAPTURE_LIMIT_S, "kernels and graphs")
        runner = build_runner(spec, model, comm, beat)
        scheduler_spec = _scheduler_spec(config, files, spec, model, layout)
        core = EngineCore(Scheduler(scheduler_spec), make_executor(runner, ranks))
    except BaseException:
        for rank in ranks:
            rank.end()
        raise
    is_deterministic = all(b.is_batch_invariant for b in backends) and not findings
    record = WorkerRecord(
        worker_id="",
        incarnation="",
        role="both",
        model=files.name,
        served_names=config.model.served_model_name or (config.model.model or files.name,),
        content_id=files.content_id,
        model_revision=files.revision,
        layout=layout,
        numerics=_numerics(spec, backends),
        algorithms=ALGORITHM_IDS,
        max_sequence_tokens=scheduler_spec.max_sequence_tokens,
        vocab_size=model.vocab_size,
        num_blocks=spec.num_blocks,
        max_num_seqs=config.scheduler.max_num_seqs,
        device=spec.platform,
        is_deterministic=is_deterministic,
    )
    _log_built(spec, backends, record)
    return core, record


def _log_built(spec: RankSpec, backends: list[type[AttentionBackend]], record: WorkerRecord) -> None:
    log.info(
        "engine built",
        device=spec.platform,
        dtype=spec.dtype,
        threads=spec.num_threads,
        attention=",".join(b.name for b in backends),
        blocks=spec.num_blocks,
        block_size=spec.block_size,
        numerics=record.numerics,
    )


def _scheduler_spec(
    config: EngineConfig, files: ModelFiles, spec: RankSpec, model: CausalLM, layout: KVLayout
) -> SchedulerSpec:
    return SchedulerSpec.of(
        replace(config.scheduler, max_num_batched_tokens=_step_tokens(config, spec.platform)),
        config.cache,
        layout,
        num_blocks=spec.num_blocks,
        max_model_len=model.max_position,
        eos_token_ids=frozenset(files.eos_token_ids),
        vocab_size=model.vocab_size,
        model_revision=files.revision,
    )


def _check_parallel(parallel: ParallelConfig) -> None:
    reasons = {
        "tensor_parallel_size": "must be 1: layers cannot be split over devices yet",
        "pipeline_parallel_size": "must be 1: a model cannot be cut into stages yet",
        "data_parallel_size": "must be 1: one worker runs one engine; start more workers for more engines",
    }
    problems = [
        Problem(name, show(getattr(parallel, name)), allowed)
        for name, allowed in reasons.items()
        if getattr(parallel, name) != 1
    ]
    if problems:
        raise InvalidInput.of(problems)


def resolve_spec(config: EngineConfig, files: ModelFiles, num_ranks: int = 1) -> RankSpec:
    """Settings with every `auto` and 0 resolved for this machine, but for the number of blocks."""
    platform = detect_platform(config.device.device)
    dtype = resolve_dtype(config.model.dtype, platform)
    kv_dtype = dtype if config.cache.kv_cache_dtype == "auto" else config.cache.kv_cache_dtype
    return RankSpec(
        config_json=json.dumps(files.config),
        format=files.format,
        weights=tuple(str(path) for path in files.weights),
        load_format=config.model.load_format,
        seed=config.model.seed,
        rope_scaling=config.model.rope_scaling,
        platform=platform,
        dtype=dtype,
        kv_dtype=resolve_dtype(kv_dtype, platform, "kv_cache_dtype"),
        attention_backend=config.device.attention_backend,
        block_size=resolve_block_size(config.cache, platform),
        max_model_len=config.model.max_model_len,
        max_num_seqs=config.scheduler.max_num_seqs,
        num_threads=num_threads(config.device, num_ranks),
        num_ranks=num_ranks,
        eos_token_ids=tuple(files.eos_token_ids),
        max_num_batched_tokens=_step_tokens(config, platform),
        enforce_eager=config.device.enforce_eager,
    )


def _with_blocks(spec: RankSpec, config: EngineConfig, model: CausalLM, layout: KVLayout) -> RankSpec:
    num_blocks = count_blocks(
        config.cache,
        layout,
        pool_bytes(config.cache, spec.device, spec.num_ranks, _working_bytes(spec, model)),
        max_num_seqs=spec.max_num_seqs,
        max_model_len=model.max_position,
    )
    return msgspec.structs.replace(spec, num_blocks=num_blocks)


def _working_bytes(spec: RankSpec, model: CausalLM) -> int:
    """Device memory that steps take beside weights and pool, from above: activations, logits, captured graphs."""
    widest = max(linear.weight.shape[0] for linear in model.linears() if linear.weight.shape[0] != model.vocab_size)
    activations = (spec.max_num_batched_tokens + spec.max_num_seqs) * widest * TORCH_DTYPES[spec.dtype].itemsize * 4
    sizes = [] if spec.enforce_eager else decode_sizes(spec.max_num_seqs)
    num_graphs = 0 if spec.enforce_eager else len(sizes) + len(mixed_sizes(spec.max_num_batched_tokens))
    logits = (sum(sizes) + 3 * spec.max_num_seqs) * model.vocab_size * torch.float32.itemsize
    return WORKING_BYTES + activations + logits + num_graphs * GRAPH_BYTES


def _step_tokens(config: EngineConfig, platform: str) -> int:
    return config.scheduler.max_num_batched_tokens or DEFAULT_STEP_TOKENS.get(platform, GPU_STEP_TOKENS)


def _check_determinism(spec: RankSpec, model: CausalLM, backends: list[type[AttentionBackend]]) -> list[str]:
    findings = []
    for backend, group in zip(backends, model.groups, strict=True):
        if backend.is_batch_invariant:
            findings += determinism_check(backend, spec.attention_spec(model, group))
    for finding in findings:
        log.warning("this machine is not deterministic", finding=finding)
    return findings


def _numerics(spec: RankSpec, backends: list[type[AttentionBackend]]) -> str:
    return fingerprint(
        {
            "torch": torch.__version__,
            "numpy": np.__version__,
            "isa": instruction_set(spec.platform),
            "dtype": spec.dtype,
            "kv_dtype": spec.kv_dtype,
            "ranks": spec.num_ranks,
            "backends": [b.name for b in backends],
            "kernels": native.identity() if spec.platform == "cpu" else triton_version(),
            "chunk_tokens": CHUNK_TOKENS,
        }
    )
