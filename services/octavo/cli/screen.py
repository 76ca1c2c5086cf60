"""`Screen`: what a person sees of a cluster: rows while it starts, lines of its services, how to call it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from octavo.obs.log import format_line, get_logger
from octavo.obs.progress import ProgressDisplay

NOT_FIELDS = ("time", "level", "service", "logger", "message", "trace")

log = get_logger(__name__)


class Screen:
    """Shows phases in `display` while it is open; passes lines on, for people (`is_text`) or for machines as JSON."""

    def __init__(self, display: ProgressDisplay, *, is_text: bool) -> None:
        self._display = display
        self._is_text = is_text
        self._is_starting = True

    def phase(self, name: str, phase: str, fraction: float = -1.0, detail: str = "") -> None:
        if self._is_starting:
            self._display.update(name, phase, fraction, detail)

    def started(self) -> None:
        """All services are ready (or never will be): rows end, lines go on."""
        self._is_starting = False
        self._display.close()

    def line(self, name: str, text: str) -> None:
        """A line that a service wrote: JSON of our logs, or anything else."""
        entry = _log_entry(text)
        if not self._is_text:
            if entry is not None:
                self._display.note(text)
            elif text.strip():
                log.info(text, source=name)
            return
        if entry is None:
            self._display.note(f"{name} | {text}")
            return
        fields = {key: value for key, value in entry.items() if key not in NOT_FIELDS}
        shown = _clock(entry) + format_line(name, str(entry.get("level", "")), str(entry["message"]), fields)
        self._display.note("\n".join([shown, *([entry["trace"]] if "trace" in entry else [])]))


class ScreenStream:
    """A text stream for log handlers that prints through the display, so that lines and rows do not mix."""

    def __init__(self, display: ProgressDisplay, *, is_terminal: bool) -> None:
        self._display = display
        self._is_terminal = is_terminal

    def write(self, text: str) -> int:
        if text.strip():
            self._display.note(text.rstrip("\n"))
        return len(text)

    def flush(self) -> None:
        """Lines are printed at once."""

    def isatty(self) -> bool:
        return self._is_terminal


def _log_entry(text: str) -> dict[str, str] | None:
    if not text.startswith("{"):
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "message" in entry else None


def _clock(entry: Mapping[str, str]) -> str:
    """The local time of a log entry, as our own lines show it."""
    try:
        return datetime.fromisoformat(entry["time"]).astimezone().strftime("%H:%M:%S ")
    except (KeyError, TypeError, ValueError):
        return ""


def how_to_call(model: str, addresses: Mapping[str, str], *, has_chat_template: bool) -> str:
    """The lines that tell how to reach a ready cluster; the curl line works as it stands."""
    url = f"http://{reachable(addresses.get('http', ''))}"
    body: dict[str, object]
    if has_chat_template:
        path = "/v1/chat/completions"
        question = {"role": "user", "content": "What is the capital of France?"}
        body = {"model": model, "messages": [question], "temperature": 0}
    else:
        path = "/v1/completions"
        body = {"model": model, "prompt": "The capital of France is", "max_tokens": 32}
    quoted = json.dumps(body).replace("'", "'\\''")
    return "\n".join(
        [
            "",
            f"Octavo serves {model}:",
            f"  HTTP (OpenAI API)  {url}/v1",
            f"  gRPC               {reachable(addresses.get('grpc', ''))}",
            "",
            f"  curl -s {url}{path} \\",
            f"    -H 'Content-Type: application/json' -d '{quoted}'",
            "",
            f'  openai.OpenAI(base_url="{url}/v1", api_key="none")',
            "",
            "Ctrl-C ends it.",
        ]
    )


def reachable(address: str) -> str:
    """An address to call, for one to listen on: any-address becomes loopback."""
    host, _, port = address.rpartition(":")
    loopback = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}
    return f"{loopback.get(host, host)}:{port}"
