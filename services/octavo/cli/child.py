"""`Child`: one life of one service process, with its notices and its log lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from octavo.cli.lifeline import PARENT_ENV
from octavo.obs.notify import NOTIFY_FD_ENV, Notice, parse_notice

CHUNK = 1 << 16
MAX_LINE = 1 << 20
LAST_WORDS_S = 1.0


class Child:
    """A started process.  `on_notice` and `on_line` are called in the order in which it speaks.

    The process joins our group with SIGINT blocked: Ctrl-C reaches the whole group, but the order in which services end
    is the supervisor's to decide, and it uses SIGTERM.
    """

    def __init__(self, process: subprocess.Popen[bytes], pipes: list[_Pipe]) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._pipes = pipes
        self._exit: asyncio.Future[int] = loop.create_future()
        threading.Thread(target=self._watch, args=(loop,), name=f"wait-{process.pid}", daemon=True).start()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        env: Mapping[str, str],
        on_notice: Callable[[Notice], None],
        on_line: Callable[[str], None],
    ) -> Child:
        """Start `command`.  Must run in the main thread: the child dies with the thread that starts it."""
        process, notice_fd, output_fd = _spawn(command, env)
        pipes = [
            await _Pipe.open(notice_fd, lambda line: _pass_notice(line, on_notice)),
            await _Pipe.open(output_fd, lambda line: on_line(line.decode(errors="replace"))),
        ]
        return cls(process, pipes)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return not self._exit.done()

    async def wait(self) -> int:
        """The exit code (minus the signal's number where one killed it), after its last words were passed on."""
        code = await asyncio.shield(self._exit)
        for pipe in self._pipes:
            await pipe.finish()
        return code

    def send(self, number: signal.Signals) -> None:
        if self.is_alive:
            self._process.send_signal(number)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        # The loop may be closed already where the supervisor itself failed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._exit.set_result, code)


def _spawn(command: Sequence[str], env: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """The process, and the reading ends of its notices and of its output."""
    notice_fd, notice_writer = os.pipe()
    output_fd, output_writer = os.pipe()
    child_env = {**env, NOTIFY_FD_ENV: str(notice_writer), PARENT_ENV: str(os.getpid())}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            list(command),
            env=child_env,
            pass_fds=(notice_writer,),
            stdin=subprocess.DEVNULL,
            stdout=output_writer,
            stderr=output_writer,
        )
    except OSError:
        os.close(notice_fd)
        os.close(output_fd)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(notice_writer)
        os.close(output_writer)
    return process, notice_fd, output_fd


class _Pipe:
    """The reading end of a pipe, cut into lines."""

    def __init__(self, transport: asyncio.BaseTransport, task: asyncio.Task[None]) -> None:
        self._transport = transport
        self._task = task

    @classmethod
    async def open(cls, fd: int, on_line: Callable[[bytes], None]) -> _Pipe:
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(fd, "rb", buffering=0)
        )
        return cls(transport, asyncio.create_task(_read_lines(stream, on_line)))

    async def finish(self) -> None:
        """Read to the end.  Descendants may hold the pipe open; what the service itself said is in it already."""
        await asyncio.wait([self._task], timeout=LAST_WORDS_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._transport.close()


async def _read_lines(stream: asyncio.StreamReader, on_line: Callable[[bytes], None]) -> None:
    """Call `on_line` per line, whatever its length; a line over `MAX_LINE` bytes comes in pieces."""
    rest = b""
    while chunk := await stream.read(CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE:
            lines, rest = [*lines, rest], b""
        for line in lines:
            on_line(line)
    if rest:
        on_line(rest)


def _pass_notice(line: bytes, on_notice: Callable[[Notice], None]) -> None:
    # A notice of a newer or a third service that we do not know is no reason to end a cluster.
    with contextlib.suppress(msgspec.MsgspecError):
        on_notice(parse_notice(line))
