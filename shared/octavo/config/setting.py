"""`Setting`: one field of one command, with its flag, environment variable and file key; and the parsing of values."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from octavo.config.option import Option
from octavo.errors import Problem, show

TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off")
BYTE_UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}


@dataclass(frozen=True)
class Setting:
    """A field of a command's configuration.

    `group` is the attribute of the command that holds it, `section` the dataclass of that attribute, `kind` the type of
    one value (`str`, `int`, `float` or `bool`), `is_many` whether the field is a tuple of them.
    """

    name: str
    group: str
    section: type
    kind: type
    is_many: bool
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "OCTAVO_" + self.name.upper()

    @property
    def expected(self) -> str:
        """What a value must be, for messages."""
        one = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}[self.kind]
        if self.kind is int and self.name.endswith("_bytes"):
            one = "an integer, or one with a unit such as 512MiB"
        return f"a list, each item {one}" if self.is_many else one


_described: dict[type, tuple[Setting, ...]] = {}


def settings_of(command: type) -> tuple[Setting, ...]:
    """All settings of `command`, in the order of its fields.  A name that occurs twice is a fault of ours."""
    if command not in _described:
        _described[command] = _describe(command)
    return _described[command]


def _describe(command: type) -> tuple[Setting, ...]:
    found: dict[str, Setting] = {}
    groups = get_type_hints(command)
    for group in dataclasses.fields(command):
        section = groups[group.name]
        hints = get_type_hints(section)
        for item in dataclasses.fields(section):
            if item.name in found:
                raise TypeError(f"{command.__name__}: setting {item.name} occurs twice")
            hint = hints[item.name]
            is_many = hint not in (str, int, float, bool)
            kind = hint.__args__[0] if is_many else hint
            found[item.name] = Setting(
                item.name, group.name, section, kind, is_many, item.default, item.metadata["option"]
            )
    return tuple(found.values())


def suggest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean X?"` for the known word nearest to `word`, or nothing."""
    bare = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), list(bare), n=1, cutoff=0.6)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def parse_text(setting: Setting, text: str) -> Any:
    """The value written as `text` in a flag or an environment variable.  Raises ValueError for anything else."""
    if setting.is_many:
        return tuple(_parse_one(setting, part.strip()) for part in text.split(",") if part.strip())
    return _parse_one(setting, text.strip())


def parse_texts(setting: Setting, texts: Sequence[str]) -> Any:
    """As `parse_text`, for a flag that was given several times: lists are joined, else the last one counts."""
    if setting.is_many:
        return tuple(value for text in texts for value in parse_text(setting, text))
    return parse_text(setting, texts[-1])


def parse_typed(setting: Setting, value: object) -> Any:
    """The value of a file or of JSON, which has types already.  Raises ValueError where they do not fit."""
    if setting.is_many:
        if isinstance(value, str):
            return parse_text(setting, value)
        if not isinstance(value, list | tuple):
            raise ValueError(setting.expected)
        return tuple(_check_one(setting, item) for item in value)
    return _check_one(setting, value)


def _parse_one(setting: Setting, text: str) -> Any:
    try:
        if setting.kind is bool:
            return _parse_bool(text)
        if setting.kind is int:
            return _parse_int(text, has_unit=setting.name.endswith("_bytes"))
        if setting.kind is float:
            return _finite(float(text))
    except ValueError:
        raise ValueError(setting.expected) from None
    return text


def _parse_bool(text: str) -> bool:
    word = text.lower()
    if word not in TRUE_WORDS + FALSE_WORDS:
        raise ValueError(text)
    return word in TRUE_WORDS


def _parse_int(text: str, has_unit: bool) -> int:
    match = re.fullmatch(r"([0-9.]+)\s*([kmg]i?)b?", text.lower()) if has_unit else None
    if match is None:
        return int(text)
    return int(float(match[1]) * BYTE_UNITS[match[2]])


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(number)
    return number


def _check_one(setting: Setting, value: object) -> Any:
    kind = setting.kind
    if kind is int and isinstance(value, str) and setting.name.endswith("_bytes"):
        return _parse_one(setting, value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(setting.expected)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(setting.expected)
    return value


def check_range(setting: Setting, value: Any) -> Problem | None:
    """What is wrong with a value of the right type: out of range, or none of the choices."""
    option = setting.option
    for item in value if setting.is_many else (value,):
        if option.choices and item not in option.choices:
            return Problem(
                setting.name, show(item), f"must be one of {', '.join(option.choices)}{suggest(item, option.choices)}"
            )
        is_below = option.minimum is not None and item < option.minimum
        is_above = option.maximum is not None and item > option.maximum
        if is_below or is_above:
            return Problem(setting.name, show(item), f"must be {range_text(option)}")
    return None


def range_text(option: Option) -> str:
    """`at least 1`, `at most 9`, or `between 1 and 9`."""
    low, high = option.minimum, option.maximum
    if low is not None and high is not None:
        return f"between {low:g} and {high:g}"
    return f"at least {low:g}" if low is not None else f"at most {high:g}"
