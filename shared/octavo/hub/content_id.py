"""The content id of weights on disk: sha256 over headers, sizes and sampled pages.

It names the weights cheaply (milliseconds for many gigabytes), so that two workers can tell whether they serve the
same ones; a full hash costs a read of every byte.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.errors import InvalidInput

NUM_PAGES = 64
PAGE_BYTES = 4096
MAX_HEADER_BYTES = 16 << 20


def content_id(files: Sequence[Path]) -> str:
    """`sha256:` and 64 hex digits over the files in the order of their names; `InvalidInput` if one is unreadable."""
    digest = hashlib.sha256(b"octavo content 1")
    for path in sorted(files, key=lambda p: p.name):
        try:
            _add_file(digest, path)
        except OSError as error:
            raise InvalidInput(f"model: cannot read {path}: {error}", param="model") from None
    return f"sha256:{digest.hexdigest()}"


def config_id(config: dict[str, Any]) -> str:
    """The content id of a model without weight files: that of its configuration."""
    body = json.dumps(config, sort_keys=True, default=str).encode()
    return f"config:{hashlib.sha256(body).hexdigest()}"


def _add_file(digest: Any, path: Path) -> None:
    size = path.stat().st_size
    digest.update(struct.pack("<Q", size))
    with path.open("rb") as file:
        header_bytes = min(size, MAX_HEADER_BYTES, _header_bytes(file.read(8), path))
        file.seek(0)
        digest.update(file.read(header_bytes))
        for page in range(NUM_PAGES):
            file.seek((size - min(size, PAGE_BYTES)) * page // (NUM_PAGES - 1))
            digest.update(file.read(PAGE_BYTES))


def _header_bytes(start: bytes, path: Path) -> int:
    """A safetensors file states its header's length in its first 8 bytes; of others the first MiB is read."""
    if path.suffix == ".safetensors" and len(start) == 8:
        return 8 + int(struct.unpack("<Q", start)[0])
    return 1 << 20
