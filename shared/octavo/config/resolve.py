"""`resolve()`: flags over environment over file over defaults, with every problem reported at once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from octavo.config.flags import build_parser, read_flags
from octavo.config.flat import build, non_defaults, to_flat
from octavo.config.setting import Setting, parse_text, parse_typed, settings_of, suggest
from octavo.config.validate import validate
from octavo.errors import InvalidInput, Problem, show

T = TypeVar("T")


@dataclass(frozen=True)
class Resolved(Generic[T]):
    """The outcome: `config` (usable only without `problems`), and where each value came from.

    `sources` maps every setting to `flag`, `env`, `file` or `default`.  `overrides` names each value that lost to one
    of a higher source with another value, so that nothing is overridden silently.
    """

    config: T
    sources: dict[str, str]
    problems: list[Problem] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)

    def checked(self) -> T:
        """The configuration.  Raises `InvalidInput` that lists every problem."""
        if self.problems:
            raise InvalidInput.of(self.problems)
        return self.config

    def info_json(self) -> str:
        """`{field: value}` as JSON, secrets masked: what `/server_info` shows."""
        return json.dumps(to_flat(self.config))

    def summary(self) -> str:
        """The settings that are not at their default, on one line."""
        changed = non_defaults(self.config)
        return " ".join(f"{name}={json.dumps(value)}" for name, value in changed.items()) or "all defaults"


def read_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def resolve(
    command: type[T],
    argv: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    read: Callable[[str], str] = read_file,
    prog: str = "octavo",
    description: str = "",
) -> Resolved[T]:
    """Resolve the settings of `command`.

    Pure given `argv`, `env` and `read` (the text of a config file by path; OSError where there is none).  An empty
    environment variable counts as not set.  `--help` prints and raises SystemExit(0).
    """
    env = env or {}
    parser = build_parser(command, prog, description)
    flags = read_flags(parser, command, argv)
    problems = flags.problems
    path = flags.config_path or env.get("OCTAVO_CONFIG", "")
    layers: list[tuple[str, dict[str, Any]]] = [
        ("flag", flags.values),
        ("env", _read_env(command, env, problems)),
        ("file", _read_config(command, path, read, problems) if path else {}),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    overrides: list[str] = []
    for setting in settings_of(command):
        given = [(source, layer[setting.name]) for source, layer in layers if setting.name in layer]
        sources[setting.name] = given[0][0] if given else "default"
        if given:
            values[setting.name] = given[0][1]
        overrides += [_override_text(setting, given[0], lost) for lost in given[1:] if lost[1] != given[0][1]]
    config = build(command, values)
    if flags.is_cut:
        already = {problem.field for problem in problems}
        problems += [problem for problem in validate(config) if problem.field not in already]
    return Resolved(config, sources, problems, overrides)


def _override_text(setting: Setting, won: tuple[str, Any], lost: tuple[str, Any]) -> str:
    if setting.option.is_secret:
        return f"{setting.name}: the {won[0]} is used, not the {lost[0]}"
    return f"{setting.name}: {show(won[1])} ({won[0]}) is used, not {show(lost[1])} ({lost[0]})"


def _read_env(command: type, env: Mapping[str, str], problems: list[Problem]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings_of(command):
        text = env.get(setting.env, "")
        if not text:
            continue
        try:
            values[setting.name] = parse_text(setting, text)
        except ValueError as error:
            hint = ""
            if text.startswith("tcp://"):
                hint = "; Kubernetes sets this for a service named octavo: use enableServiceLinks: false"
            shown = "a secret" if setting.option.is_secret else show(text)
            problems.append(Problem(setting.name, shown, f"must be {error} ({setting.env}){hint}"))
    return values


def _read_config(command: type, path: str, read: Callable[[str], str], problems: list[Problem]) -> dict[str, Any]:
    try:
        table = _parse_file(path, read(path))
    except OSError as error:
        problems.append(Problem("config", show(path), f"cannot be read: {error.strerror or error}"))
        return {}
    except ValueError as error:
        problems.append(Problem("config", show(path), f"must be TOML, or JSON in a file named .json: {error}"))
        return {}
    known = {setting.name: setting for setting in settings_of(command)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            problems.append(Problem(key, show(value), f"there is no such setting in {path}{suggest(name, known)}"))
            continue
        try:
            values[name] = parse_typed(known[name], value)
        except ValueError as error:
            shown = "a secret" if known[name].option.is_secret else show(value)
            problems.append(Problem(name, shown, f"must be {error} (in {path})"))
    return values


def _parse_file(path: str, text: str) -> dict[str, Any]:
    table = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    if not isinstance(table, dict):
        raise ValueError("the top level must be a table of settings")
    return table
