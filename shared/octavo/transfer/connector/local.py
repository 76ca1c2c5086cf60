"""`local`: two engines in one process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.transfer.connector.memory import MemoryConnector, View
from octavo.transfer.connector.peer import Event, Gate
from octavo.transfer.machine.noun import Reason
from octavo.transfer.message import Terms

_here: dict[str, View] = {}


class LocalConnector(MemoryConnector):
    """Finds the other engine's memory by its incarnation."""

    name = "local"

    def __init__(self) -> None:
        super().__init__()
        self._incarnation = ""

    @classmethod
    def validate(cls, mine: Terms, theirs: Terms) -> list[str]:
        is_here = theirs.incarnation in _here
        return super().validate(mine, theirs) or ([] if is_here else [f"{theirs.worker_id} runs in another process"])

    def register(self, terms: Terms, regions: Sequence[np.ndarray], epochs: np.ndarray, gate: Gate) -> str:
        self._incarnation = terms.incarnation
        _here[terms.incarnation] = View(list(regions), epochs)
        return terms.incarnation

    def view(self, terms: Terms) -> View | Reason | None:
        return _here.get(terms.incarnation, Reason.PEER_GONE)

    def close(self, pull_id: int | None = None) -> list[Event]:
        if pull_id is None:
            _here.pop(self._incarnation, None)
        return super().close(pull_id)
