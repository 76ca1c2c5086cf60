"""What the commands of single services share: settings, logs, and the tie to the process that started them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from octavo.cli.lifeline import tie_to_parent
from octavo.config.resolve import Resolved, resolve
from octavo.errors import InvalidInput, OctavoError, Problem
from octavo.obs.log import get_logger, setup
from octavo.obs.notify import Notifier

T = TypeVar("T")

log = get_logger(__name__)


def run_service(
    command: type[T],
    name: str,
    summary: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    run: Callable[[T, str], int],
) -> int:
    """Resolve the settings of `command`, set logs up and call `run(config, info_json)`; returns its exit code."""
    tie_to_parent(env)
    resolved = read_settings(command, name, summary, argv, env)
    announce(resolved, is_detail=Notifier.from_env().is_heard)
    try:
        return run(resolved.config, resolved.info_json())
    except OctavoError:
        raise
    except Exception as error:
        log.exception(f"{name} failed: a fault of Octavo's, not of the input")
        Notifier.from_env().failed(f"internal error: {type(error).__name__}: {error}")
        return 1


def read_settings(
    command: type[T], name: str, summary: str, argv: Sequence[str], env: Mapping[str, str]
) -> Resolved[T]:
    """The settings, and logs set up by them.  Raises `InvalidInput` that shows each problem on a line of its own."""
    resolved = resolve(command, argv, env, prog=f"octavo {name}", description=summary)
    if resolved.problems:
        raise InvalidInput(problem_text(resolved.problems), param=resolved.problems[0].field)
    settings = resolved.config.log  # type: ignore[attr-defined]
    setup(name, settings.log_level, settings.log_format)
    return resolved


def problem_text(problems: list[Problem]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    return "\n  ".join([f"{len(problems)} settings are wrong:", *map(str, problems)])


def announce(resolved: Resolved[T], *, is_detail: bool = False) -> None:
    """Log the outcome once: what is not at its default (a detail where a supervisor said so), and, at debug, all."""
    (log.debug if is_detail else log.info)(f"settings: {resolved.summary()}")
    for text in resolved.overrides:
        log.info(text)
    log.debug("all settings", settings=resolved.info_json(), sources=json.dumps(resolved.sources), pid=os.getpid())
