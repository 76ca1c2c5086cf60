"""The jinja2 environment of chat templates: the functions they expect, inside the sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class RenderLimit(jinja2.TemplateError):
    """A template put out too much, or ran too long."""


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks an assistant's words for training; its body is kept as it is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Environment(ImmutableSandboxedEnvironment):
    """Block trimming, loop controls, `raise_exception`, `strftime_now` and a `tojson` that escapes nothing."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
        self.filters["tojson"] = _to_json
        self.globals.pop("lipsum", None)
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda format: now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def iterates_content(tree: nodes.Template) -> bool:
    """Whether a template loops over a message's content, so that it works with lists of parts.

    Followed are `message.content`, `message['content']`, filters over them, and variables set from them.
    """
    names = {"content"} & {n.name for n in tree.find_all(nodes.Name) if n.ctx == "store"}
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _is_content(assignment.node, names):
            names.add(assignment.target.name)
    return any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))


def tests_for_string(tree: nodes.Template) -> bool:
    """Whether a template asks if something is a string, and so handles both shapes of content."""
    return any(test.name == "string" for test in tree.find_all(nodes.Test))


def _is_content(node: nodes.Node | None, names: set[str]) -> bool:
    if isinstance(node, nodes.Filter):
        return _is_content(node.node, names)
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    return isinstance(node, nodes.Name) and node.name in names
