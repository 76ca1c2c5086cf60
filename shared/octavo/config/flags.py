"""Flags: an argparse parser made from the fields of a command's dataclasses.

argparse only cuts the command line into texts; `resolve` gives them types, so that one run reports every problem.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from octavo.config.setting import Setting, parse_text, parse_texts, range_text, settings_of, suggest
from octavo.errors import Problem, show

CONFIG_HELP = "File with settings (TOML or JSON), by field name. [env: OCTAVO_CONFIG]"


class _UsageError(Exception):
    pass


class _Parser(argparse.ArgumentParser):
    """A parser that raises on a bad command line instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


class ParsedFlags:
    """What a command line says: typed values by setting name, the config file, and problems.

    `is_cut` is false where the command line could not be cut into flags at all, so that nothing else is known.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.config_path = ""
        self.is_cut = True


def build_parser(command: type, prog: str, description: str = "") -> argparse.ArgumentParser:
    """The parser of `command`; its help is complete: default, environment name and choices of each flag."""
    parser = _Parser(
        prog=prog,
        usage=f"%(prog)s {' '.join(_positionals(command))}[--flag VALUE …]",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="A flag beats its environment variable, which beats the file, which beats the default.",
    )
    add_flags(parser, command)
    parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=CONFIG_HELP)
    return parser


def add_flags(parser: argparse.ArgumentParser, command: type) -> None:
    """Add a flag per setting, one help group per dataclass.  Values stay texts; absent flags leave no attribute."""
    groups: dict[str, Any] = {}
    for setting in settings_of(command):
        if setting.group not in groups:
            title = (setting.section.__doc__ or setting.group).strip().splitlines()[0]
            groups[setting.group] = parser.add_argument_group(f"{setting.group}: {title}")
        group = groups[setting.group]
        if setting.option.is_positional:
            name = setting.option.metavar or setting.name.upper()
            group.add_argument(
                positional_name(setting),
                nargs="?",
                metavar=name,
                default=argparse.SUPPRESS,
                help=f"Same as {setting.flag}.",
            )
        if setting.kind is bool and not setting.is_many:
            group.add_argument(
                setting.flag,
                *setting.option.aliases,
                dest=setting.name,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=help_text(setting),
            )
            continue
        group.add_argument(
            setting.flag,
            *setting.option.aliases,
            dest=setting.name,
            action="append",
            metavar=_metavar(setting),
            default=argparse.SUPPRESS,
            help=help_text(setting),
        )


def _positionals(command: type) -> list[str]:
    return [f"[{setting.option.metavar}] " for setting in settings_of(command) if setting.option.is_positional]


def positional_name(setting: Setting) -> str:
    return f"{setting.name}_positional"


def help_text(setting: Setting) -> str:
    """The help of one flag, e.g. `HTTP port; 0: a free one. [default: 8000; 0 to 65535; env: OCTAVO_PORT]`."""
    option = setting.option
    facts = [f"default: {_default_text(setting)}"]
    if option.choices:
        facts.append(f"choices: {', '.join(option.choices)}")
    if option.minimum is not None or option.maximum is not None:
        facts.append(range_text(option))
    if setting.is_many:
        facts.append("repeatable, or separated by commas")
    facts.append(f"env: {setting.env}")
    return f"{option.help} [{'; '.join(facts)}]".replace("%", "%%")


def _default_text(setting: Setting) -> str:
    if setting.option.is_secret:
        return "not set"
    if setting.is_many:
        return ",".join(map(str, setting.default)) or "none"
    if setting.kind is bool:
        return "on" if setting.default else "off"
    return str(setting.default) if setting.default != "" else "not set"


def _metavar(setting: Setting) -> str:
    if setting.option.metavar:
        return setting.option.metavar
    return {str: "TEXT", int: "N", float: "X", bool: "BOOL"}[setting.kind]


def read_flags(parser: argparse.ArgumentParser, command: type, argv: Sequence[str]) -> ParsedFlags:
    """Cut `argv` into values by setting.  `--help` prints and raises SystemExit, as argparse does."""
    parsed = ParsedFlags()
    try:
        namespace, unknown = parser.parse_known_args([_with_dashes(arg) for arg in argv])
    except _UsageError as error:
        parsed.problems.append(Problem("arguments", show(" ".join(argv)), str(error)))
        parsed.is_cut = False
        return parsed
    flags = [name for action in parser._actions for name in action.option_strings]
    for arg in unknown:
        if arg.startswith("-") or not any(other.startswith("-") for other in unknown):
            name = arg.split("=", 1)[0]
            allowed = f"there is no such flag{suggest(name, flags)}"
            if not arg.startswith("-"):
                allowed = "only one MODEL is taken, and every other value belongs after its flag"
            parsed.problems.append(Problem("arguments", show(name), allowed))
    found = vars(namespace)
    parsed.config_path = found.get("config", "")
    for setting in settings_of(command):
        _read_flag(setting, found, parsed)
    return parsed


def _read_flag(setting: Setting, found: dict[str, Any], parsed: ParsedFlags) -> None:
    positional = found.get(positional_name(setting))
    given = found.get(setting.name)
    if isinstance(given, bool):
        parsed.values[setting.name] = given
        return
    if positional is not None and given is not None and given[-1] != positional:
        allowed = f"{setting.flag} {show(given[-1])} names another; give one of the two"
        parsed.problems.append(Problem(setting.name, show(positional), allowed))
    texts = [positional] if positional is not None else given
    if texts is None:
        return
    try:
        parsed.values[setting.name] = parse_texts(setting, texts)
    except ValueError as error:
        bad = next((text for text in texts if not _can_parse(setting, text)), texts[-1])
        parsed.problems.append(Problem(setting.name, show(bad), f"must be {error} ({setting.flag})"))


def _can_parse(setting: Setting, text: str) -> bool:
    try:
        parse_text(setting, text)
    except ValueError:
        return False
    return True


def _with_dashes(arg: str) -> str:
    """`--max_model_len=9` as `--max-model-len=9`: both spellings are in use."""
    if not arg.startswith("--"):
        return arg
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value
