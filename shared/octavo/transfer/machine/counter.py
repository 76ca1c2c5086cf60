"""What the machines count; counters only grow over an incarnation."""

from __future__ import annotations

import msgspec


class Counters(msgspec.Struct):
    """One side's counts.  `failures` is by reason, for pulls at the consumer and transfers at the producer."""

    num_transfers: int = 0
    num_pulls: int = 0
    num_acked: int = 0
    num_released: int = 0
    num_expired: int = 0
    num_pages: int = 0
    num_bad_pages: int = 0
    num_late: int = 0
    num_parked: int = 0
    num_probes: int = 0
    num_restarts: int = 0
    num_recomputes: int = 0
    num_quarantines: int = 0
    num_refused_reads: int = 0
    failures: dict[str, int] = msgspec.field(default_factory=dict)

    def count_failure(self, reason: str) -> None:
        self.failures[reason] = self.failures.get(reason, 0) + 1
