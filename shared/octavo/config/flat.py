"""A configuration as one flat dictionary, and back; and as the command line that yields it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from octavo.config.setting import parse_typed, settings_of, suggest
from octavo.errors import InvalidInput, Problem, show

MASK = "***"

T = TypeVar("T")


def to_flat(config: object, *, has_secrets: bool = False) -> dict[str, Any]:
    """`{field: value}` of all groups; tuples become lists.  Secrets that are set read `***` unless `has_secrets`."""
    flat: dict[str, Any] = {}
    for setting in settings_of(type(config)):
        value = getattr(getattr(config, setting.group), setting.name)
        if setting.option.is_secret and value and not has_secrets:
            value = [MASK] * len(value) if setting.is_many else MASK
        flat[setting.name] = list(value) if setting.is_many else value
    return flat


def from_flat(command: type[T], flat: Mapping[str, Any]) -> T:
    """The configuration with the values of `flat`, the rest at default.  Raises `InvalidInput` with every problem:
    unknown names and wrong types.  Ranges are `validate`'s business."""
    known = {setting.name: setting for setting in settings_of(command)}
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, value in flat.items():
        if name not in known:
            problems.append(Problem(name, show(value), f"there is no such setting{suggest(name, known)}"))
            continue
        try:
            values[name] = parse_typed(known[name], value)
        except ValueError as error:
            problems.append(Problem(name, show(value), f"must be {error}"))
    if problems:
        raise InvalidInput.of(problems)
    return build(command, values)


def build(command: type[T], values: Mapping[str, Any]) -> T:
    """The configuration with `values` by setting name, which must be of the right types."""
    groups: dict[str, Any] = {item.name: None for item in dataclasses.fields(command)}  # type: ignore[arg-type]
    sections = {setting.group: setting.section for setting in settings_of(command)}
    for group in groups:
        names = [s.name for s in settings_of(command) if s.group == group and s.name in values]
        groups[group] = sections[group](**{name: values[name] for name in names})
    return command(**groups)


def non_defaults(config: object) -> dict[str, Any]:
    """The flat values that differ from their defaults, secrets masked."""
    flat = to_flat(config)
    changed = {}
    for setting in settings_of(type(config)):
        default = list(setting.default) if setting.is_many else setting.default
        if flat[setting.name] != default:
            changed[setting.name] = flat[setting.name]
    return changed


def to_argv(config: object) -> list[str]:
    """Flags that yield `config`: every value that is not the default, save secrets (`secret_env`)."""
    argv: list[str] = []
    for setting in settings_of(type(config)):
        value = getattr(getattr(config, setting.group), setting.name)
        if value == setting.default or setting.option.is_secret:
            continue
        if setting.kind is bool and not setting.is_many:
            argv.append(setting.flag if value else "--no-" + setting.flag[2:])
        elif setting.is_many:
            argv += [f"{setting.flag}={item}" for item in value]
        else:
            argv.append(f"{setting.flag}={value}")
    return argv


def secret_env(config: object) -> dict[str, str]:
    """Environment variables that carry the secrets of `config`: they belong on no command line."""
    env: dict[str, str] = {}
    for setting in settings_of(type(config)):
        value = getattr(getattr(config, setting.group), setting.name)
        if setting.option.is_secret and value:
            env[setting.env] = ",".join(map(str, value)) if setting.is_many else str(value)
    return env
