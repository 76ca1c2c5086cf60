"""Two ranks over gloo: the tokens of one rank, and an end when one of them dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from octavo.config.engine import CacheConfig, DeviceConfig, EngineConfig, ModelConfig
from octavo.engine.build import build_ranks
from octavo.engine.core import EngineCore
from octavo.errors import InternalError
from octavo.hub.files import ModelFiles
from octavo.request import Request, SequenceInput
from octavo.sampling_params import SamplingParams
from octavo.testing.tiny_model import tiny_config

CONFIG = EngineConfig(
    model=ModelConfig(model="tiny", dtype="float32", load_format="dummy"),
    cache=CacheConfig(block_size=16, num_gpu_blocks_override=64),
    device=DeviceConfig(device="cpu", threads=1),
)
FILES = ModelFiles("tiny", "none", tiny_config(), (), None, eos_token_ids=(1,))


@pytest.fixture
def two_ranks() -> Iterator[EngineCore]:
    core, _ = build_ranks(CONFIG, FILES, num_ranks=2)
    yield core
    core.close()


def submit(core: EngineCore, num_tokens: int) -> None:
    for index, prompt in enumerate(([5, 6, 7], list(range(2, 60)), [9] * 33)):
        params = SamplingParams(temperature=float(index % 2), seed=index, max_tokens=num_tokens, ignore_eos=True)
        core.add_request(Request(str(index), 1, prompt, params, [SequenceInput(0)]))


def tokens_of(core: EngineCore, num_tokens: int) -> dict[str, list[int]]:
    submit(core, num_tokens)
    out: dict[str, list[int]] = {}
    while core.has_unfinished_requests():
        for emission in core.step():
            assert emission.error is None, emission.error
            out.setdefault(emission.request_id, []).extend(emission.token_ids)
    return out


def test_two_ranks_give_the_tokens_of_one(two_ranks: EngineCore) -> None:
    one, _ = build_ranks(CONFIG, FILES, num_ranks=1)
    assert tokens_of(two_ranks, 12) == tokens_of(one, 12)
    two_ranks.check_integrity()


def rank_pids(core: EngineCore) -> list[int]:
    return [rank.pid for rank in core.executor.ranks]


def test_a_killed_rank_ends_the_engine_at_once(two_ranks: EngineCore) -> None:
    submit(two_ranks, 500)
    two_ranks.step()
    (pid,) = rank_pids(two_ranks)
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(InternalError, match="rank"):
        for _ in range(500):
            two_ranks.step()
    assert time.monotonic() - started < 5


def test_closing_ends_the_ranks() -> None:
    core, _ = build_ranks(CONFIG, FILES, num_ranks=2)
    (pid,) = rank_pids(core)
    core.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
