"""`EngineArgs`: the engine's settings by their flat names, from keywords or from a command line."""

from __future__ import annotations

import argparse
import os
from typing import Any

from octavo.config.engine import EngineConfig
from octavo.config.flags import add_flags, positional_name
from octavo.config.flat import from_flat, to_flat
from octavo.config.setting import parse_texts, parse_typed, settings_of
from octavo.config.validate import validate
from octavo.errors import InvalidInput, Problem, show


class EngineArgs:
    """Any engine flag as a keyword: `EngineArgs("smollm2-135m", max_num_seqs=8)`.

    `config` is the resulting `EngineConfig`.  Raises `InvalidInput` that lists every problem: unknown names, wrong
    types, values out of range.  Names and defaults are those of the configuration dataclasses.
    """

    def __init__(self, model: str | os.PathLike[str] = "", **flags: Any) -> None:
        if not isinstance(model, str | os.PathLike):
            allowed = "must be a demo name, a Hugging Face id, a folder or a .gguf file"
            raise InvalidInput.of([Problem("model", show(model), allowed)])
        self.config: EngineConfig = from_flat(EngineConfig, {"model": os.fspath(model), **flags})
        problems = validate(self.config)
        if problems:
            raise InvalidInput.of(problems)

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add every engine flag to `parser`, and return it."""
        add_flags(parser, EngineConfig)
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> EngineArgs:
        """From what a parser found; attributes that are not engine settings are left alone."""
        found = vars(args)
        flags: dict[str, Any] = {}
        problems: list[Problem] = []
        for setting in settings_of(EngineConfig):
            value = found.get(positional_name(setting))
            if value is None:
                value = found.get(setting.name)
            if value is None:
                continue
            is_text = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
            try:
                if is_text:
                    flags[setting.name] = parse_texts(setting, [value] if isinstance(value, str) else value)
                else:
                    flags[setting.name] = parse_typed(setting, value)
            except ValueError as error:
                problems.append(Problem(setting.name, show(value), f"must be {error}"))
        if problems:
            raise InvalidInput.of(problems)
        return cls(**flags)

    def flat(self) -> dict[str, Any]:
        """`{field: value}` of all settings."""
        return to_flat(self.config)

    def __repr__(self) -> str:
        return f"EngineArgs({', '.join(f'{name}={value!r}' for name, value in self.flat().items())})"
