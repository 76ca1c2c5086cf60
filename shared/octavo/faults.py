"""Fault points: named places in the code that do nothing unless `OCTAVO_FAULT` says otherwise.

`OCTAVO_FAULT=name#3:kill` acts at the third visit of the point `name`, `name:drop` at every visit, `name#2-5:drop` at
visits 2 to 5, `name%7:drop` at every 7th; several are joined by commas.  Actions: `kill` (SIGKILL to this process),
`hang` (sleep for ever), `raise`, `delay:500ms`, and for points that carry frames `drop`, `double`, `reorder`.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from octavo.errors import InternalError, InvalidInput

ACTIONS = ("kill", "hang", "raise", "delay", "drop", "double", "reorder")
_SPEC = re.compile(
    r"(?P<name>[a-z_.]+)(?:#(?P<first>\d+)(?:-(?P<last>\d+))?|%(?P<every>\d+))?:(?P<action>[a-z]+)(?::(?P<ms>\d+)ms)?"
)


@dataclass
class Fault:
    """One armed fault and how often its point was visited."""

    name: str
    action: str
    first: int = 1
    last: int = 1 << 62
    every: int = 1
    delay_s: float = 0.0
    num_visits: int = 0

    def is_due(self) -> bool:
        self.num_visits += 1
        return self.first <= self.num_visits <= self.last and self.num_visits % self.every == 0


def parse(text: str) -> list[Fault]:
    """The faults in the text of `OCTAVO_FAULT`; raises `InvalidInput` for one that does not parse."""
    faults = []
    for spec in filter(None, (part.strip() for part in text.split(","))):
        match = _SPEC.fullmatch(spec)
        if match is None or match["action"] not in ACTIONS:
            raise InvalidInput(
                f"OCTAVO_FAULT: got {spec!r}; use name[#n|#n-m|%n]:action with one of {ACTIONS}", param="OCTAVO_FAULT"
            )
        first = int(match["first"] or 1)
        last = int(match["last"]) if match["last"] else (first if match["first"] else 1 << 62)
        delay_s = int(match["ms"] or 0) / 1000
        faults.append(Fault(match["name"], match["action"], first, last, int(match["every"] or 1), delay_s))
    return faults


_armed: dict[str, list[Fault]] = {}
_held: dict[str, tuple[bytes, Callable[[bytes], None]]] = {}


def arm(text: str) -> None:
    """Replace the armed faults of this process by those in `text`."""
    _armed.clear()
    _held.clear()
    for fault in parse(text):
        _armed.setdefault(fault.name, []).append(fault)


def _due(name: str) -> list[Fault]:
    faults = _armed.get(name)
    return [f for f in faults if f.is_due()] if faults else []


def _act(fault: Fault) -> None:
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action == "hang":
        while True:
            time.sleep(3600)
    elif fault.action == "delay":
        time.sleep(fault.delay_s)
    elif fault.action == "raise":
        raise InternalError(f"fault point {fault.name} was told to raise")


def point(name: str) -> None:
    """A plain fault point."""
    if _armed:
        for fault in _due(name):
            _act(fault)


def frame(name: str, data: bytes, send: Callable[[bytes], None]) -> None:
    """A fault point that carries a frame: sends it, unless a fault drops, doubles or reorders it.

    `reorder` holds a frame back until the next one of this point was sent.
    """
    if not _armed:
        send(data)
        return
    actions = []
    for fault in _due(name):
        if fault.action in ("drop", "double", "reorder"):
            actions.append(fault.action)
        else:
            _act(fault)
    held = _held.pop(name, None)
    if "reorder" in actions and held is None:
        _held[name] = (data, send)
    elif "drop" not in actions:
        send(data)
        if "double" in actions:
            send(data)
    if held is not None:
        late, send_late = held
        send_late(late)


arm(os.environ.get("OCTAVO_FAULT", ""))
