"""`octavo`: finds the named command and runs it.

A command is one module: built in (`octavo.cli.command.NAME`), or named by an entry point of the group
`octavo.commands`.  It has `run(argv, env) -> int`; the first line of its docstring is its summary.  Only the command
that is named is imported.
"""

from __future__ import annotations

import ast
import difflib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

from octavo.version import __version__

ENTRY_POINT_GROUP = "octavo.commands"
EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run the command line `argv`; returns the exit code: 0, 1 for a failure, 2 for bad input."""
    argv = sys.argv[1:] if argv is None else list(argv)
    env = os.environ if env is None else env
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if argv else EXIT_BAD_INPUT
    if argv[0] in ("-V", "--version"):
        print(f"octavo {__version__}")
        return 0
    module = find_command(argv[0])
    if module is None:
        near = difflib.get_close_matches(argv[0], command_names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"octavo: error: there is no command {argv[0]!r}{hint} (octavo --help lists them)", file=sys.stderr)
        return EXIT_BAD_INPUT
    return run_command(module, argv[1:], env)


def run_command(module: ModuleType, argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run one command; a typed error becomes one clear message, told to a waiting supervisor too."""
    from octavo.errors import InvalidInput, OctavoError
    from octavo.obs.notify import Notifier

    try:
        return int(module.run(argv, env))
    except OctavoError as error:
        print(f"octavo: error: {error.message}", file=sys.stderr)
        Notifier.from_env().failed(error.message)
        return EXIT_BAD_INPUT if isinstance(error, InvalidInput) else EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_FAILURE
    except BrokenPipeError:
        # The reader of our output is gone (`octavo models | head`): nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE


def find_command(name: str) -> ModuleType | None:
    if name in _built_in():
        return import_module(f"octavo.cli.command.{name}")
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        loaded = point.load()
        if isinstance(loaded, ModuleType):
            return loaded
    return None


def command_names() -> list[str]:
    return sorted({*_built_in(), *(point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP))})


def usage() -> str:
    """The commands with their summaries, read without importing them."""
    summaries = {name: _summary(path) for name, path in _built_in().items()}
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        summaries.setdefault(point.name, f"from {point.value}")
    lines = [f"  {name:<10} {text}" for name, text in sorted(summaries.items())]
    return "\n".join(
        ["usage: octavo COMMAND …", "", "commands:", *lines, "", "octavo COMMAND --help explains one; octavo --version"]
    )


def _built_in() -> dict[str, Path]:
    folder = Path(__file__).parent / "command"
    return {item.name: folder / f"{item.name}.py" for item in pkgutil.iter_modules([str(folder)])}


def _summary(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return doc.splitlines()[0] if doc else ""
