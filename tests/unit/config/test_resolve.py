"""`resolve()`: every setting of every command by flag, environment and file; precedence; problems all at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.engine import EngineConfig
from octavo.config.flat import from_flat, to_argv, to_flat
from octavo.config.resolve import Resolved, resolve
from octavo.config.setting import Setting, settings_of
from octavo.config.validate import validate
from octavo.errors import InvalidInput

COMMANDS = (RouterService, GatewayService, WorkerService, ClusterService)
REFUSED = {
    "trust_remote_code": "runs no code",
    "tensor_parallel_size": "must be 1",
    "pipeline_parallel_size": "must be 1",
    "data_parallel_size": "must be 1",
}
ONE_CHOICE = {"topology"}
SPECIAL: dict[str, Any] = {
    "block_size": 64,
    "router_metrics_port": 7001,
    "worker_metrics_port": 7002,
    "rope_scaling": '{"rope_type":"yarn","factor":4}',
    "router": ("10.0.0.1:9000", "10.0.0.2:9000"),
    "live_limit_s": 77.5,
    "ready_limit_s": 7.5,
}


def other_value(setting: Setting) -> Any:
    """A legal value that is not the default."""
    if setting.name in SPECIAL:
        return SPECIAL[setting.name]
    if setting.is_many:
        return ("first", "second")
    if setting.kind is bool:
        return not setting.default
    if setting.option.choices:
        return next((c for c in setting.option.choices if c != setting.default), setting.default)
    if setting.kind is str:
        return f"some-{setting.name}"
    step = 1 if setting.kind is int else 0.5
    top = setting.option.maximum
    return setting.default + step if top is None or setting.default + step <= top else setting.default - step


def as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def base_env(command: type, setting: Setting) -> dict[str, str]:
    """What the command cannot do without."""
    needed = {"model": "m", "router": "127.0.0.1:1"}
    names = {s.name for s in settings_of(command)}
    return {f"OCTAVO_{k.upper()}": v for k, v in needed.items() if k in names and k != setting.name}


def by_flag(command: type, setting: Setting, value: Any) -> Resolved[Any]:
    if setting.kind is bool:
        argv = [setting.flag if value else "--no-" + setting.flag[2:]]
    elif setting.is_many:
        argv = [part for item in value for part in (setting.flag, item)]
    else:
        argv = [setting.flag, as_text(value)]
    return resolve(command, argv, base_env(command, setting))


def by_env(command: type, setting: Setting, value: Any) -> Resolved[Any]:
    return resolve(command, [], {**base_env(command, setting), setting.env: as_text(value)})


def by_toml(command: type, setting: Setting, value: Any) -> Resolved[Any]:
    text = f"{setting.name} = {json.dumps(value)}\n"
    return resolve(command, ["--config", "c.toml"], base_env(command, setting), read=lambda _: text)


def by_json(command: type, setting: Setting, value: Any) -> Resolved[Any]:
    text = json.dumps({setting.flag[2:]: value})
    return resolve(command, [], {**base_env(command, setting), "OCTAVO_CONFIG": "c.json"}, read=lambda _: text)


EVERY = [pytest.param(c, s, id=f"{c.__name__}-{s.name}") for c in COMMANDS for s in settings_of(c)]


@pytest.mark.parametrize(("way", "source"), [(by_flag, "flag"), (by_env, "env"), (by_toml, "file"), (by_json, "file")])
@pytest.mark.parametrize(("command", "setting"), EVERY)
def test_every_setting_can_be_set(command: type, setting: Setting, way: Any, source: str) -> None:
    value = other_value(setting)
    assert value != setting.default or setting.name in ONE_CHOICE
    resolved = way(command, setting, value)
    if setting.name in REFUSED:
        assert [p.field for p in resolved.problems] == [setting.name]
        assert REFUSED[setting.name] in str(resolved.problems[0])
        return
    assert resolved.problems == []
    assert to_flat(resolved.config)[setting.name] == (list(value) if setting.is_many else value)
    assert resolved.sources[setting.name] == source


@pytest.mark.parametrize("command", COMMANDS)
def test_argv_of_a_configuration_yields_it_again(command: type) -> None:
    values = {s.name: other_value(s) for s in settings_of(command) if s.name not in REFUSED}
    config = from_flat(command, values)
    assert validate(config) == []
    again = resolve(command, to_argv(config))
    assert again.problems == []
    assert again.config == config


def test_flag_beats_env_beats_file_beats_default_and_says_so() -> None:
    read = {"c.toml": 'port = 1111\nseed = 5\nhost = "h"\n'}.__getitem__
    env = {"OCTAVO_PORT": "2222", "OCTAVO_SEED": "6"}
    resolved = resolve(ClusterService, ["m", "--port", "3333", "--config=c.toml"], env, read=read)
    config = resolved.checked()
    assert (config.gateway.port, config.model.seed, config.gateway.host) == (3333, 6, "h")
    assert config.cluster.workers == 1
    assert [resolved.sources[n] for n in ("port", "seed", "host", "workers")] == ["flag", "env", "file", "default"]
    assert resolved.overrides == [
        "port: 3333 (flag) is used, not 2222 (env)",
        "port: 3333 (flag) is used, not 1111 (file)",
        "seed: 6 (env) is used, not 5 (file)",
    ]


def test_all_problems_come_at_once() -> None:
    text = 'prot = 9\nmax_num_seqs = "many"\n'
    argv = ["--workers", "x", "--dtype", "float23", "--block-size", "17", "-tp", "2", "--nope", "--config", "f.toml"]
    env = {"OCTAVO_PORT": "99999"}
    problems = {p.field: str(p) for p in resolve(ClusterService, argv, env, read=lambda _: text).problems}
    assert problems == {
        "arguments": "arguments: got '--nope'; there is no such flag",
        "workers": "workers: got 'x'; must be an integer (--workers)",
        "prot": "prot: got 9; there is no such setting in f.toml; did you mean port?",
        "max_num_seqs": "max_num_seqs: got 'many'; must be an integer (in f.toml)",
        "port": "port: got 99999; must be between 0 and 65535",
        "dtype": "dtype: got 'float23'; must be one of auto, float32, bfloat16, float16; did you mean float32?",
        "block_size": "block_size: got 17; must be one of 16, 32, 64, 128, or 0 for the device's default",
        "tensor_parallel_size": "tensor_parallel_size: got 2; must be 1: layers cannot be split over devices yet",
        "model": problems["model"],
    }


def test_model_positional_equals_the_flag() -> None:
    assert resolve(ClusterService, ["a", "--model", "a"]).checked().model.model == "a"
    assert resolve(ClusterService, ["--port", "9", "a"]).checked().model.model == "a"
    [problem] = resolve(ClusterService, ["a", "--model", "b"]).problems
    assert str(problem) == "model: got 'a'; --model 'b' names another; give one of the two"


def test_spellings_users_know() -> None:
    argv = ["m", "--max_model_len=64", "--kv-cache-memory-bytes", "1.5GiB", "--served-model-name", "a,b"]
    config = resolve(ClusterService, [*argv, "--served-model-name", "c"]).checked()
    assert config.model.max_model_len == 64
    assert config.cache.kv_cache_memory_bytes == 3 * 2**29
    assert config.model.served_model_name == ("a", "b", "c")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["m", "--port"], "expected one argument"),
        (["m", "extra"], "got 'extra'; only one MODEL is taken"),
        (["m", "--prot=9"], "did you mean --port?"),
        (["m", "--gpu-memory-utilization", "nan"], "must be a number"),
        (["m", "--gpu-memory-utilization", "1.5"], "between 0.01 and 1"),
        (["m", "--restart=maybe"], "ignored explicit argument"),
        (["m", "--config", "/nowhere/x.toml"], "cannot be read"),
    ],
)
def test_bad_command_lines(argv: list[str], message: str) -> None:
    problems = resolve(ClusterService, argv).problems
    assert len(problems) == 1
    assert message in str(problems[0])


@pytest.mark.parametrize(("name", "text"), [("c.toml", "port = "), ("c.json", "[1]"), ("c.json", "{")])
def test_broken_files(name: str, text: str) -> None:
    [problem] = resolve(ClusterService, ["m", "--config", name], read=lambda _: text).problems
    assert problem.field == "config"


@pytest.mark.parametrize("text", ["port = true", "port = 1.5", "restart = 1", "host = 5", "router = 5", "workers = []"])
def test_wrong_types_in_files(text: str) -> None:
    command = GatewayService if "router" in text else ClusterService
    env = {"OCTAVO_ROUTER": "h:1"} if "router" in text else {}
    problems = resolve(command, ["m", "--config", "c.toml"], env, read=lambda _: text).problems
    assert [p.field for p in problems] == [text.split(" ")[0]]


def test_an_address_that_kubernetes_injects_is_explained() -> None:
    [problem] = resolve(ClusterService, ["m"], {"OCTAVO_PORT": "tcp://10.0.0.1:80"}).problems
    assert "enableServiceLinks" in str(problem)


def test_flat_of_an_engine_configuration() -> None:
    config = from_flat(EngineConfig, {"model": "m", "seed": 3})
    assert config.model.seed == 3
    assert from_flat(EngineConfig, json.loads(json.dumps(to_flat(config)))) == config
    with pytest.raises(InvalidInput, match=r"did you mean seed\?.*must be an integer"):
        from_flat(EngineConfig, {"sed": 3, "block_size": "x"})
