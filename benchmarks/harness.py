"""What every benchmark here shares: prompts, medians, the machine, tables and JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

Prompts = list[list[int]]


def draw_prompts(name: str, repetition: int, num_prompts: int, num_tokens: int, vocab_size: int) -> Prompts:
    """Random token ids, fresh for every repetition so that no prefix cache answers; equal for every system."""
    rng = np.random.default_rng([*name.encode(), repetition])
    return [rng.integers(256, vocab_size - 2, size=num_tokens).tolist() for _ in range(num_prompts)]


def timed(call: Callable[[], object]) -> float:
    """Seconds that `call` takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def machine() -> dict[str, object]:
    """What a figure depends on: processor, cores, load, versions."""
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


class Figures:
    """Samples by (what, system); medians on demand."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[float]] = {}

    def add(self, what: str, system: str, value: float) -> None:
        self._samples.setdefault((what, system), []).append(value)

    def median(self, what: str, system: str) -> float | None:
        samples = self._samples.get((what, system))
        return statistics.median(samples) if samples else None

    def ratio(self, what: str, system: str, peer_what: str, peer: str) -> float | None:
        """The median of one cell over that of another; None where one was not measured."""
        mine, theirs = self.median(what, system), self.median(peer_what, peer)
        return mine / theirs if mine and theirs else None

    def rows(self) -> dict[str, dict[str, dict[str, object]]]:
        """what → system → {median, samples}."""
        out: dict[str, dict[str, dict[str, object]]] = {}
        for (what, system), samples in self._samples.items():
            out.setdefault(what, {})[system] = {"median": statistics.median(samples), "samples": samples}
        return out

    def show(self, title: str, peer: str = "") -> None:
        """Print a table of medians; with `peer`, each system's ratio to it."""
        rows = self.rows()
        systems = list(dict.fromkeys(s for by_system in rows.values() for s in by_system))
        table = Table(title=title)
        table.add_column("")
        for system in systems:
            table.add_column(system, justify="right")
        for what, by_system in rows.items():
            base = by_system.get(peer, {}).get("median")
            cells = []
            for system in systems:
                median = by_system.get(system, {}).get("median")
                text = "" if median is None else f"{median:,.4g}"
                cells.append(text + (f"  ({median / base:.2f}×)" if base and median and system != peer else ""))
            table.add_row(what, *cells)
        Console(width=160).print(table)


def report(path: str, **content: object) -> None:
    """Print the machine, the date and `content` as one line of JSON; write it to `path` too unless that is empty."""
    text = json.dumps({"machine": machine(), "unix_s": int(time.time()), **content})
    print(text)
    if path:
        Path(path).write_text(text + "\n")
