"""Every flag of `octavo up` set by flag, by environment and by file, and read back at `/server_info`.

One cluster per way, each with all settings away from their defaults (but for those that have one legal value).
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.setting import Setting, settings_of
from octavo.testing.tiny_model import write_tiny_model
from octavo.testing.up_cluster import UpCluster

pytestmark = pytest.mark.cluster

ONE_VALUE: dict[str, Any] = {
    "topology": "aggregated",
    "trust_remote_code": False,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
}
"""Settings with one legal value: set to it, since any other is refused."""

OTHER: dict[str, Any] = {
    "block_size": 16,
    "chat_template": "template.jinja",
    "device": "cpu",
    "dtype": "float32",
    "kv_cache_dtype": "float32",
    "load_format": "dummy",
    "max_model_len": 64,
    "max_num_batched_tokens": 128,
    "num_gpu_blocks_override": 40,
    "kv_cache_memory_bytes": 4 << 20,
    "attention_backend": "reference",
    "rope_scaling": '{"rope_type":"linear","factor":2.0}',
    "generation_config": "none",
    "served_model_name": ["first", "second"],
    "worker_id": "some-worker",
    "revision": "some-revision",
    "response_role": "helper",
    "quantization": "none",
    "log_level": "debug",
    "workers": 2,
    "seed": 7,
    "live_limit_s": 90.5,
    "host": "127.0.0.2",
    "router_host": "127.0.0.3",
    "worker_host": "127.0.0.4",
}


def free_port(num: int = 1) -> int:
    """A port with `num - 1` free ones after it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        if first + num < 65536 and all(_is_free(first + i) for i in range(num)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def other_value(setting: Setting, folder: Path) -> Any:
    name = setting.name
    if name in ONE_VALUE:
        return ONE_VALUE[name]
    if name == "model":
        return str(folder)
    if name == "tokenizer":
        return str(folder / "tokenizer.json")
    if name == "chat_template":
        return str(folder / OTHER[name])
    if name.endswith("port"):
        return free_port(2)
    if name in OTHER:
        return OTHER[name]
    if setting.kind is bool:
        return not setting.default
    if setting.option.choices:
        return next(choice for choice in setting.option.choices if choice != setting.default)
    if setting.kind is str:
        raise AssertionError(f"say in OTHER what {name} is set to")
    step = 1 if setting.kind is int else 0.5
    top = setting.option.maximum
    return setting.default + step if top is None or setting.default + step <= top else setting.default - step


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    folder = write_tiny_model(tmp_path / "tiny")
    (folder / "template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    chosen = {setting.name: other_value(setting, folder) for setting in settings_of(ClusterService)}
    assert len({v for name, v in chosen.items() if name.endswith("port")}) == 6
    same = [s.name for s in settings_of(ClusterService) if chosen[s.name] == s.default and s.name not in ONE_VALUE]
    assert same == []
    return chosen


def by_flags(values: dict[str, Any], tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    argv: list[str] = []
    for setting in settings_of(ClusterService):
        value = values[setting.name]
        if setting.kind is bool:
            argv.append(setting.flag if value else "--no-" + setting.flag[2:])
        else:
            argv += [f"{setting.flag}={item}" for item in (value if setting.is_many else [value])]
    return argv, {}


def by_env(values: dict[str, Any], tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    env = {}
    for setting in settings_of(ClusterService):
        value = values[setting.name]
        env[setting.env] = ",".join(value) if setting.is_many else str(value)
    return [], env


def by_file(values: dict[str, Any], tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    path = tmp_path / "octavo.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return ["--config", str(path)], {}


@pytest.mark.parametrize("way", [by_flags, by_env, by_file])
def test_every_setting_is_read_back(values: dict[str, Any], tmp_path: Path, way: Any) -> None:
    argv, env = way(values, tmp_path)
    # The model is named again so that the helper can pass it; it equals the setting.
    with UpCluster(values["model"], "--port", str(values["port"]), *argv, env=env) as cluster:
        info = cluster.get("/server_info")
        assert info["cluster"] == values
        assert cluster.http == f"127.0.0.2:{values['port']}"
    parts = {"gateway": (GatewayService, info["gateway"]), "router": (RouterService, info["router"])}
    parts |= {f"worker {i}": (WorkerService, worker) for i, worker in enumerate(info["workers"])}
    assert len(parts) == 4
    own = {"router", "worker_id", "worker_port", "worker_metrics_port"}
    for name, (command, flat) in parts.items():
        expected = {s.name: values.get(s.name) for s in settings_of(command) if s.name not in own}
        assert {key: value for key, value in flat.items() if key not in own} == expected, name
    ids = {flat["worker_id"] for command, flat in parts.values() if command is WorkerService}
    assert ids == {"some-worker-0", "some-worker-1"}
    ports = {flat["worker_port"] for command, flat in parts.values() if command is WorkerService}
    assert ports == {values["worker_port"], values["worker_port"] + 1}


def test_help_names_every_flag() -> None:
    command = [sys.executable, "-m", "octavo.cli", "up", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    flags = set(re.findall(r"(?m)^  +(?:.*, )?(--[a-z][a-z-]*)", text)) - {"--help", "--config"}
    known = {setting.flag for setting in settings_of(ClusterService)}
    negated = {"--no-" + setting.flag[2:] for setting in settings_of(ClusterService) if setting.kind is bool}
    assert known <= flags | {f.replace("--no-", "--") for f in flags}
    assert flags - negated <= known
