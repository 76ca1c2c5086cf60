"""`option()`: a dataclass field that is also a flag, an environment variable and a config-file key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Option:
    """What a flag needs beyond the field's name, type and default.

    The flag is `--` + the field name with dashes, the environment variable `OCTAVO_` + the name in capitals, the file
    key the field name.  `is_positional` makes the flag also a positional argument.  `is_secret` keeps the value out of
    every print.  `minimum`/`maximum`/`choices` are checked by `validate` and shown in `--help`.
    """

    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    aliases: tuple[str, ...] = ()
    is_positional: bool = False
    is_secret: bool = False
    metavar: str = ""


def option(default: Any, help: str, **details: Any) -> Any:
    """A field with `default` (a tuple or immutable value) described by an `Option`."""
    return field(default=default, metadata={"option": Option(help=help, **details)})
