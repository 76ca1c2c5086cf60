"""`RankSpec`: everything that a rank needs to build its runner, resolved by rank 0 and sent to the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from octavo.engine.kv_memory import allocate_pool
from octavo.engine.model.base import CausalLM
from octavo.engine.model.loader.load import load
from octavo.engine.model.registry import create_model
from octavo.engine.parallel.comm import Comm
from octavo.engine.platform import TORCH_DTYPES, torch_device
from octavo.engine.runner.context import PagedAttention
from octavo.engine.runner.device_tables import DeviceTables
from octavo.engine.runner.gpu_runner import GpuRunner
from octavo.engine.runner.runner import Runner
from octavo.engine.runner.slots import SlotTables
from octavo.errors import InvalidInput
from octavo.hub.files import ModelFiles
from octavo.kernels.attention import AttentionBackend, AttentionSpec
from octavo.kernels.registry import BackendUnavailable, select
from octavo.kv.layout import GroupSpec, KVLayout


class RankSpec(msgspec.Struct, frozen=True):
    """Resolved settings, the same for all ranks.  `config_json` is the model's config, `weights` its files.

    `num_blocks` 0 means not known yet: it depends on the model's sizes.
    """

    config_json: str
    format: str
    weights: tuple[str, ...]
    load_format: str
    seed: int
    rope_scaling: str
    platform: str
    dtype: str
    kv_dtype: str
    attention_backend: str
    block_size: int
    max_model_len: int
    max_num_seqs: int
    num_threads: int
    num_ranks: int
    eos_token_ids: tuple[int, ...] = ()
    num_blocks: int = 0
    max_num_batched_tokens: int = 0
    enforce_eager: bool = False

    @property
    def device(self) -> torch.device:
        return torch_device(self.platform)

    def layout_of(self, model: CausalLM) -> KVLayout:
        """The KV layout of one rank; raises `InvalidInput` with everything wrong with it."""
        layout = KVLayout(self.block_size, model.num_kv_heads, model.head_dim, self.kv_dtype, tuple(model.groups))
        problems = layout.problems()
        if problems:
            raise InvalidInput.of(problems)
        return layout

    def attention_spec(self, model: CausalLM, group: GroupSpec) -> AttentionSpec:
        """What a group's backend is asked to do.  Deterministic mode is on on CPU, but for a backend asked for by name:
        it may be one that is not, and the record says so."""
        return AttentionSpec(
            num_heads=model.num_heads,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            block_size=self.block_size,
            dtype=TORCH_DTYPES[self.dtype],
            kv_dtype=TORCH_DTYPES[self.kv_dtype],
            device=str(self.device),
            scale=model.head_dim**-0.5,
            window=group.window,
            is_deterministic=self.platform == "cpu" and self.attention_backend == "auto",
        )


def create_rank_model(spec: RankSpec, comm: Comm) -> CausalLM:
    """This rank's model, weights not yet loaded."""
    return create_model(
        json.loads(spec.config_json),
        TORCH_DTYPES[spec.dtype],
        spec.device,
        comm,
        spec.max_model_len,
        spec.rope_scaling or None,
    )


def select_backends(spec: RankSpec, model: CausalLM) -> list[type[AttentionBackend]]:
    """A backend class per group; raises `InvalidInput` with the reasons when none can run."""
    try:
        return [
            select(spec.attention_backend, spec.attention_spec(model, group), spec.platform) for group in model.groups
        ]
    except BackendUnavailable as error:
        raise InvalidInput(f"attention_backend: {error}", param="attention_backend") from error


def load_rank_weights(spec: RankSpec, model: CausalLM, progress: Callable[[float], None]) -> None:
    files = ModelFiles(
        name="",
        format=spec.format,
        config=json.loads(spec.config_json),
        weights=tuple(Path(path) for path in spec.weights),
        tokenizer_source=None,
    )
    load(model, files, spec.load_format, spec.seed, progress)


def build_runner(spec: RankSpec, model: CausalLM, comm: Comm, beat: Callable[[], None]) -> Runner:
    """Tables, backends and KV pool around a loaded model; `spec.num_blocks` is known by now."""
    layout = spec.layout_of(model)
    backends = [
        backend(spec.attention_spec(model, group))
        for backend, group in zip(select_backends(spec, model), model.groups, strict=True)
    ]
    is_capturable = spec.device.type == "cuda" and all(b.is_capturable and b.has_rotary for b in backends)
    tables = (DeviceTables if is_capturable else SlotTables)(
        spec.max_num_seqs,
        model.max_position,
        spec.block_size,
        len(layout.groups),
        vocab_size=model.vocab_size,
        eos_token_ids=frozenset(spec.eos_token_ids),
        device=spec.device,
    )
    num_blocks = spec.num_blocks + is_capturable
    pool = allocate_pool(layout, num_blocks, TORCH_DTYPES[spec.kv_dtype], spec.device)
    attention = PagedAttention(layout, backends, pool)
    if not isinstance(tables, DeviceTables):
        return Runner(model, tables, attention, comm, beat)
    tables.set_padding_block(spec.num_blocks)
    max_rows = max(spec.max_num_batched_tokens, model.max_position) + spec.max_num_seqs
    runner = GpuRunner(model, tables, attention, comm, beat, max_rows=max_rows)
    if not spec.enforce_eager:
        runner.capture(spec.max_num_batched_tokens)
    return runner
