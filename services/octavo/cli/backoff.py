"""When a service that died is started again."""

from __future__ import annotations

from dataclasses import dataclass, field

FIRST_S = 0.5
MOST_S = 30.0
FACTOR = 2.0
HEALTHY_S = 60.0
"""A life of this length forgives the deaths before it."""


@dataclass
class Backoff:
    """Delays that double with each early death.  Knows no clock."""

    num_deaths: int = field(default=0)

    def after_death(self, lived_s: float) -> float:
        """The delay in seconds before the next start, given how long the last life took."""
        if lived_s >= HEALTHY_S:
            self.num_deaths = 0
        self.num_deaths += 1
        return min(MOST_S, FIRST_S * FACTOR ** (self.num_deaths - 1))
