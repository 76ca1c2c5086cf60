"""Lines of services, the progress display off a terminal, and the lines that tell how to call a cluster."""

from __future__ import annotations

import io
import json
import shlex
import time

from octavo.cli.screen import Screen, how_to_call, reachable
from octavo.obs.progress import ProgressDisplay


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_for_people_are_prefixed() -> None:
    stream = io.StringIO()
    screen = Screen(ProgressDisplay(stream), is_text=True)
    screen.line("worker 1", json.dumps({"level": "info", "message": "loaded", "num_blocks": 4, "time": "t"}))
    screen.line("worker 1", "plain {text")
    screen.line("worker 1", '{"no": "log line"}')
    assert stream.getvalue().splitlines() == [
        "INFO    worker 1: loaded (num_blocks=4)",
        "worker 1 | plain {text",
        'worker 1 | {"no": "log line"}',
    ]


def test_a_service_line_has_the_time_of_its_entry_in_local_time(monkeypatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-02:00")
    time.tzset()
    try:
        stream = io.StringIO()
        entry = {"level": "info", "message": "loaded", "time": "2026-12-01T21:58:42.034Z"}
        Screen(ProgressDisplay(stream), is_text=True).line("worker", json.dumps(entry))
        assert stream.getvalue() == "23:58:42 INFO    worker: loaded\n"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_json_lines_pass_unchanged() -> None:
    stream = io.StringIO()
    line = json.dumps({"level": "info", "message": "loaded"})
    Screen(ProgressDisplay(stream), is_text=False).line("worker", line)
    assert stream.getvalue() == line + "\n"


def test_off_a_terminal_each_phase_is_a_line_and_no_more_than_needed() -> None:
    stream = io.StringIO()
    now_s = 0.0
    display = ProgressDisplay(stream, clock=lambda: now_s)
    with display:
        for fraction in (0.0, 0.1, 0.2):
            display.update("worker", "loading", fraction, "weights")
        now_s = 3.0
        display.update("worker", "loading", 0.5)
        display.update("worker", "ready", 1.0)
    assert stream.getvalue().splitlines() == ["worker: loading 0% (weights)", "worker: loading 50%", "worker: ready"]


def test_on_a_terminal_rows_are_drawn_and_notes_stay() -> None:
    stream = Terminal()
    with ProgressDisplay(stream) as display:
        display.update("worker", "loading", 0.5)
        display.note("a [bold] note")
        display.update("worker", "ready", 1.0)
    assert "loading" in stream.getvalue()
    assert "a [bold] note" in stream.getvalue()


def test_phases_end_with_the_start() -> None:
    stream = io.StringIO()
    screen = Screen(ProgressDisplay(stream), is_text=True)
    screen.phase("worker", "loading")
    screen.started()
    screen.phase("worker", "stopping")
    assert stream.getvalue() == "worker: loading\n"


def test_the_curl_line_can_be_pasted() -> None:
    text = how_to_call("it's", {"http": "0.0.0.0:8000", "grpc": "127.0.0.1:8001"}, has_chat_template=True)
    curl = shlex.split(text[text.index("curl") : text.index("openai")].replace("\\\n", " "))
    assert curl[2] == "http://127.0.0.1:8000/v1/chat/completions"
    assert json.loads(curl[curl.index("-d") + 1])["model"] == "it's"
    assert 'base_url="http://127.0.0.1:8000/v1"' in text
    assert "127.0.0.1:8001" in text
    base = how_to_call("m", {"http": "h:1", "grpc": "h:2"}, has_chat_template=False)
    assert "http://h:1/v1/completions" in base
    assert reachable("[::]:5") == "[::1]:5"
