"""Structured logs: both formats, fields, secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from octavo.obs.log import get_logger, setup


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(log_format: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    setup("worker", level, log_format, stream)
    return stream


def test_json_lines_carry_fields() -> None:
    stream = logged("auto")
    get_logger("octavo.x").info("loaded 100%", num_blocks=5, api_key="abc", path="/m")
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "service": "worker",
        "logger": "octavo.x",
        "message": "loaded 100%",
        "num_blocks": 5,
        "api_key": "***",
        "path": "/m",
    }


def test_text_lines() -> None:
    stream = logged("text")
    get_logger("octavo.x").warning("slow", num_tokens=3)
    assert stream.getvalue().rstrip().endswith("WARNING worker: slow (num_tokens=3)")


def test_plain_loggers_and_levels() -> None:
    stream = logged("json", "warning")
    logging.getLogger("octavo.y").info("hidden")
    logging.getLogger("octavo.y").error("bad %s", "thing")
    logging.getLogger("httpx").info("hidden")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["bad thing"]


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_secrets_in_messages_are_masked(log_format: str) -> None:
    stream = logged(log_format)
    get_logger("x").info("header Bearer abcdefgh12345 key sk-abcdefgh123 hf_abcdefgh123", header="bearer zyxwvuts99")
    assert "12345" not in stream.getvalue()
    assert "123" not in stream.getvalue().replace(":", "")[20:]
    assert "zyx" not in stream.getvalue()


def test_traces_only_on_request() -> None:
    stream = logged("json")
    try:
        raise ValueError("inner")
    except ValueError:
        get_logger("x").exception("failed")
        get_logger("x").error("failed")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert "ValueError: inner" in first["trace"]
    assert "trace" not in second
