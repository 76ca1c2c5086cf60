"""KV memory, platform, numerics: sizes and names that settings resolve to."""

from __future__ import annotations

import pytest
import torch

from octavo.config.engine import CacheConfig, DeviceConfig
from octavo.engine import platform
from octavo.engine.kv_memory import allocate_pool, count_blocks, pool_bytes, resolve_block_size
from octavo.engine.numerics import fingerprint
from octavo.errors import InvalidInput
from octavo.kv.layout import GroupSpec, KVLayout

LAYOUT = KVLayout(32, 2, 16, "float32", (GroupSpec(0, "full", (0, 2)), GroupSpec(1, "sliding", (1, 3), 64)))


def test_the_pool_has_the_layout_of_a_block() -> None:
    pool = allocate_pool(LAYOUT, 3, torch.float32, torch.device("cpu"))
    assert pool.shape == (3, 2, 2, 2, 32, 16)
    assert pool[0].numel() * pool.element_size() == LAYOUT.block_bytes
    assert not pool.any()


def test_blocks_fill_the_bytes() -> None:
    got = count_blocks(CacheConfig(), LAYOUT, 10 * LAYOUT.block_bytes + 5, max_num_seqs=64, max_model_len=1024)
    assert got == 10


def test_no_more_blocks_than_all_sequences_need() -> None:
    assert count_blocks(CacheConfig(), LAYOUT, 1 << 40, max_num_seqs=2, max_model_len=40) == 2 * 2 * 2


def test_an_override_wins() -> None:
    config = CacheConfig(num_gpu_blocks_override=7)
    assert count_blocks(config, LAYOUT, 0, max_num_seqs=1, max_model_len=32) == 7


def test_too_few_bytes_say_how_many_are_needed() -> None:
    with pytest.raises(InvalidInput, match=f"at least {2 * LAYOUT.block_bytes} bytes"):
        count_blocks(CacheConfig(), LAYOUT, LAYOUT.block_bytes, max_num_seqs=1, max_model_len=32)


def test_bytes_as_set() -> None:
    assert pool_bytes(CacheConfig(kv_cache_memory_bytes=12345), torch.device("cpu")) == 12345


def test_bytes_by_default_are_bounded_on_cpu() -> None:
    assert 0 < pool_bytes(CacheConfig(), torch.device("cpu")) <= 4 << 30


def test_block_size_defaults_by_platform() -> None:
    assert resolve_block_size(CacheConfig(), "cpu") == 32
    assert resolve_block_size(CacheConfig(), "cuda") == 64
    assert resolve_block_size(CacheConfig(block_size=16), "cuda") == 16


def test_a_bad_block_size_names_the_legal_ones() -> None:
    with pytest.raises(InvalidInput, match=r"block_size: got 24; must be one of \(16, 32, 64, 128\)"):
        resolve_block_size(CacheConfig(block_size=24), "cpu")


def test_a_missing_device_names_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "available_platforms", lambda: ["cpu"])
    with pytest.raises(InvalidInput, match="this machine has: cpu"):
        platform.detect_platform("cuda")


def test_without_a_gpu_the_cpu_is_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(platform, "available_platforms", lambda: ["cpu"])
    with caplog.at_level("INFO"):
        assert platform.detect_platform("auto") == "cpu"
    assert "no GPU found: using the CPU" in caplog.text


@pytest.mark.parametrize(("is_fast", "want"), [(True, "bfloat16"), (False, "float32")])
def test_dtype_auto_follows_the_hardware(monkeypatch: pytest.MonkeyPatch, is_fast: bool, want: str) -> None:
    monkeypatch.setattr(platform, "has_fast_bfloat16", lambda _: is_fast)
    assert platform.resolve_dtype("auto", "cpu") == want


def test_threads_are_shared_by_the_engines_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert platform.num_threads(DeviceConfig(), 2) == 4
    assert platform.num_threads(DeviceConfig(threads=3), 2) == 3


def test_a_fingerprint_is_a_function_of_its_parts() -> None:
    base = {"dtype": "float32", "isa": "avx2"}
    assert fingerprint(base) == fingerprint(dict(reversed(base.items())))
    assert fingerprint(base) != fingerprint({**base, "dtype": "bfloat16"})
    assert fingerprint(base).startswith("octavo-")
