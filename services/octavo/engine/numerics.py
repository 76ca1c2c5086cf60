"""The numerics fingerprint: equal fingerprints give equal bits for equal requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from octavo.engine.sampling.noise import ALGORITHM_ID as NOISE_ALGORITHM_ID
from octavo.kv.hash import ALGORITHM_ID as HASH_ALGORITHM_ID
from octavo.version import __version__

ALGORITHM_IDS = (HASH_ALGORITHM_ID, NOISE_ALGORITHM_ID)
DIGITS = 12


def fingerprint(parts: Mapping[str, object]) -> str:
    """`octavo-<version>-<12 hex digits>` over everything that bits depend on, in any order of `parts`."""
    everything = {**parts, "octavo": __version__, "algorithms": ALGORITHM_IDS}
    text = json.dumps(everything, sort_keys=True, default=str)
    return f"octavo-{__version__}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"
