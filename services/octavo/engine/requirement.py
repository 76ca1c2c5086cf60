"""What the engine needs beyond the base install, checked without importing it."""

from __future__ import annotations

import importlib.util

from octavo.errors import Unavailable


def check_engine_is_installed() -> None:
    """Raises `Unavailable` that says what to install where the engine's libraries are missing."""
    missing = [name for name in ("torch", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise Unavailable(f"the engine needs {names}, not installed here: pip install 'octavo[worker]'")
