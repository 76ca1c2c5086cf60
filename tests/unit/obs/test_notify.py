"""Notices travel as JSON lines over a pipe."""

from __future__ import annotations

import os

import msgspec
import pytest

from octavo.obs.notify import Failed, Listening, Notifier, Progress, Ready, parse_notice


def test_notices_arrive_in_order() -> None:
    reader, writer = os.pipe()
    env = {"OCTAVO_NOTIFY_FD": str(writer)}
    notifier = Notifier.from_env(env)
    assert notifier.is_heard
    assert env == {}
    assert not os.get_inheritable(writer)
    notifier.listening(grpc="127.0.0.1:1", http="127.0.0.1:2")
    notifier.progress("loading", 0.5, "x" * 5000)
    notifier.ready()
    notifier.failed("no such model")
    os.close(writer)
    with os.fdopen(reader, "rb") as lines:
        notices = [parse_notice(line) for line in lines]
    assert notices == [
        Listening({"grpc": "127.0.0.1:1", "http": "127.0.0.1:2"}),
        Progress("loading", 0.5, "x" * 2000),
        Ready(),
        Failed("no such model"),
    ]


@pytest.mark.parametrize("env", [{}, {"OCTAVO_NOTIFY_FD": ""}, {"OCTAVO_NOTIFY_FD": "x"}, {"OCTAVO_NOTIFY_FD": "9999"}])
def test_without_a_reader_nothing_is_sent(env: dict[str, str]) -> None:
    notifier = Notifier.from_env(env)
    assert not notifier.is_heard
    notifier.ready()


def test_a_reader_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    notifier = Notifier(writer)
    os.close(reader)
    notifier.ready()
    assert not notifier.is_heard
    os.close(writer)


def test_other_lines_are_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        parse_notice(b'{"notice":"other"}')
