"""How compute threads wait for each other."""

from __future__ import annotations

import os

SPIN_COUNT = "2000"


def limit_spinning() -> None:
    """Bound how long OpenMP's threads spin between the parallel regions of a step; call it before torch is imported.

    A step has over a hundred short regions.  With unbounded spinning one busy neighbour on the machine makes each of
    them last a scheduler tick (decode of a 135M model fell from 11 to 0.7 tokens/s); without any, every region pays a
    wake-up.  A value that the user has set stays.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
