"""Where Octavo keeps what it fetched, and how several processes share it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """`OCTAVO_CACHE`, else `~/.cache/octavo`."""
    given = os.environ.get("OCTAVO_CACHE", "")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "octavo"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path` for the length of the block; waits while another process has it.

    The kernel drops the lock when its holder dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
