"""Notices from a service to the process that started it: where it listens, how far it is, that it is ready.

Each notice is one JSON line on the file descriptor named by `OCTAVO_NOTIFY_FD`; without that variable nothing is sent.
`octavo up` reads them; other supervisors may.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import MutableMapping

import msgspec

NOTIFY_FD_ENV = "OCTAVO_NOTIFY_FD"
MAX_TEXT = 2000
"""A line stays under the size that a pipe writes in one piece (4096 bytes)."""


class Listening(msgspec.Struct, tag="listening", tag_field="notice", frozen=True):
    """The service accepts connections at `addresses`, e.g. `{"grpc": "127.0.0.1:4001", "http": "127.0.0.1:8000"}`."""

    addresses: dict[str, str]


class Progress(msgspec.Struct, tag="progress", tag_field="notice", frozen=True):
    """The service is in `phase` (such as `loading`), done by `fraction` (0 to 1; negative: unknown)."""

    phase: str
    fraction: float = -1.0
    detail: str = ""


class Ready(msgspec.Struct, tag="ready", tag_field="notice", frozen=True):
    """The service does its work from now on."""


class Failed(msgspec.Struct, tag="failed", tag_field="notice", frozen=True):
    """The service ends; `message` says why, for a user."""

    message: str


Notice = Listening | Progress | Ready | Failed

_decoder = msgspec.json.Decoder(Notice)
_encoder = msgspec.json.Encoder()


def parse_notice(line: bytes) -> Notice:
    """The notice on `line`.  Raises `msgspec.MsgspecError` for anything else."""
    return _decoder.decode(line)


class Notifier:
    """Sends notices to `fd`; -1 sends nothing.  A reader that is gone is no error.  Safe from any thread."""

    _of_process: Notifier | None = None

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def from_env(cls, env: MutableMapping[str, str] | None = None) -> Notifier:
        """The notifier of this process (of `env`, where given).

        The variable is taken out of the environment and the descriptor closed on exec: a child of this process must
        not speak in its name.
        """
        if env is not None:
            return cls(_take_fd(env))
        if Notifier._of_process is None:
            Notifier._of_process = cls(_take_fd(os.environ))
        return Notifier._of_process

    @property
    def is_heard(self) -> bool:
        """Whether some process asked for notices."""
        return self._fd >= 0

    def listening(self, **addresses: str) -> None:
        self._send(Listening(addresses))

    def progress(self, phase: str, fraction: float = -1.0, detail: str = "") -> None:
        self._send(Progress(phase, fraction, detail[:MAX_TEXT]))

    def ready(self) -> None:
        self._send(Ready())

    def failed(self, message: str) -> None:
        self._send(Failed(message[:MAX_TEXT]))

    def _send(self, notice: Notice) -> None:
        if self._fd < 0:
            return
        try:
            os.write(self._fd, _encoder.encode(notice) + b"\n")
        except BrokenPipeError:
            self._fd = -1


def _take_fd(env: MutableMapping[str, str]) -> int:
    text = env.pop(NOTIFY_FD_ENV, "")
    if not text.isdigit():
        return -1
    with contextlib.suppress(OSError):
        os.set_inheritable(int(text), False)
        return int(text)
    return -1
