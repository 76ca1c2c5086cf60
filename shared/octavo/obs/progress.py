"""How far several things are: a live table on a terminal, a plain line per change otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

LINE_EVERY_S = 2.0
"""Off a terminal, a phase that goes on is told at most this often."""


class ProgressDisplay:
    """Rows by name, each with a phase and a fraction.  Use as a context manager; `note` prints above the rows.

    `stream` defaults to stderr.  `fraction` is 0 to 1, negative where it is unknown.  Not for several threads at once.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        stream = sys.stderr if stream is None else stream
        self._rows: _Rows = _LiveRows(stream) if stream.isatty() else _PlainRows(stream, clock)

    def __enter__(self) -> ProgressDisplay:
        self._rows.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def update(self, name: str, phase: str, fraction: float = -1.0, detail: str = "") -> None:
        self._rows.update(name, phase, min(fraction, 1.0), detail)

    def note(self, text: str) -> None:
        """Print a line of its own."""
        self._rows.note(text)

    def close(self) -> None:
        """Take the rows away; `note` still prints."""
        self._rows.close()


class _Rows:
    def open(self) -> None:
        """Begin to show."""

    def close(self) -> None:
        """Show nothing more."""

    def update(self, name: str, phase: str, fraction: float, detail: str) -> None:
        raise NotImplementedError

    def note(self, text: str) -> None:
        raise NotImplementedError


class _PlainRows(_Rows):
    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._last: dict[str, tuple[str, float]] = {}

    def update(self, name: str, phase: str, fraction: float, detail: str) -> None:
        told_phase, told_s = self._last.get(name, ("", 0.0))
        now_s = self._clock()
        if phase == told_phase and now_s - told_s < LINE_EVERY_S:
            return
        self._last[name] = (phase, now_s)
        share = f" {fraction:.0%}" if 0 <= fraction < 1 else ""
        self.note(f"{name}: {phase}{share}" + (f" ({detail})" if detail else ""))

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _LiveRows(_Rows):
    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = Console(file=stream)
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[phase]}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}"),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[str, int] = {}

    def open(self) -> None:
        self._progress.start()

    def close(self) -> None:
        self._progress.stop()

    def update(self, name: str, phase: str, fraction: float, detail: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=None, phase=phase, detail=detail)
        total = None if fraction < 0 else 1.0
        task = self._progress.tasks[self._tasks[name]]
        if task.total != total:
            self._progress.update(task.id, total=total)
        self._progress.update(task.id, completed=max(fraction, 0.0), phase=phase, detail=detail)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
