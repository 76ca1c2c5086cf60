"""`file`: blocks in a folder that workers share, one safetensors file each.

`<root>/<fingerprint>/<group>/<hash>.safetensors`.  A value is written to a temporary file beside its place and renamed,
so it is there in full or not at all.  The header's metadata carries format version, digests and the time of the put.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import InvalidInput, Problem, show
from octavo.transfer.connector.peer import CACHE_BYTES
from octavo.transfer.connector.store import StoreConnector, StoreKey, digests_of
from octavo.transfer.digest import Hasher

logger = logging.getLogger(__name__)

FORMAT = "octavo-kv-1"
SUFFIX = ".safetensors"
PARTIAL_SUFFIX = ".partial"
MAX_HEADER_BYTES = 1 << 20
FINGERPRINT = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass
class FileCounters:
    num_puts: int = 0
    num_hits: int = 0
    num_misses: int = 0
    num_bad: int = 0
    num_full: int = 0
    num_evicted: int = 0


class FileStore(StoreConnector):
    """`ttl_s` 0 keeps values for ever; `size_limit_bytes` 0 means no limit, else the oldest values make room."""

    name = "file"

    def __init__(self, path: str, ttl_s: float = 0.0, size_limit_bytes: int = 0, partial_ttl_s: float = 600.0) -> None:
        if not path:
            raise InvalidInput.of([Problem("kv_connector_extra_config.path", show(path), "must name a folder")])
        self._root = Path(path)
        self._root.mkdir(parents=True, exist_ok=True)
        self._ttl_s, self._size_limit_bytes, self._partial_ttl_s = ttl_s, size_limit_bytes, partial_ttl_s
        self.counters = FileCounters()

    def put(self, key: StoreKey, shards: Sequence[np.ndarray], now_s: float) -> bool:
        place = self._place(key)
        if place.exists():
            os.utime(place, (now_s, now_s))
            return True
        data = self._header(shards, now_s)
        if not self._make_room(len(data) + sum(s.nbytes for s in shards)):
            self.counters.num_full += 1
            return False
        partial = place.with_name(f"{place.name}.{uuid.uuid4().hex}{PARTIAL_SUFFIX}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(partial, "xb") as file:
                file.write(data)
                for shard in shards:
                    file.write(np.ascontiguousarray(shard).view(np.uint8).data)
                file.flush()
                os.fsync(file.fileno())
            os.utime(partial, (now_s, now_s))
            os.rename(partial, place)
        except OSError as error:
            logger.warning("could not store a block in %s: %s", self._root, error)
            with contextlib.suppress(OSError):
                partial.unlink()
            self.counters.num_full += 1
            return False
        self.counters.num_puts += 1
        return True

    def get(self, key: StoreKey, targets: Sequence[np.ndarray], now_s: float) -> bool:
        place = self._place(key)
        try:
            with open(place, "rb") as file:
                if self._is_old(os.fstat(file.fileno()).st_mtime, now_s):
                    self.counters.num_misses += 1
                    return False
                is_good = self._read(file, targets)
        except FileNotFoundError:
            self.counters.num_misses += 1
            return False
        except (OSError, ValueError) as error:
            logger.warning("could not read %s: %s", place, error)
            is_good = False
        if is_good:
            self.counters.num_hits += 1
            return True
        self.counters.num_bad += 1
        with contextlib.suppress(OSError):
            place.unlink()
        return False

    def delete(self, key: StoreKey) -> bool:
        try:
            self._place(key).unlink()
        except FileNotFoundError:
            return False
        return True

    def list(self, fingerprint: str, now_s: float) -> Sequence[StoreKey]:
        found = []
        for path, mtime_s, _ in self._files(self._folder(fingerprint)):
            if not self._is_old(mtime_s, now_s):
                with contextlib.suppress(ValueError):
                    key = StoreKey(fingerprint, int(path.parent.name), bytes.fromhex(path.name.removesuffix(SUFFIX)))
                    found.append((mtime_s, key))
        return [key for _, key in sorted(found, key=lambda pair: -pair[0])]

    def sweep(self, now_s: float) -> int:
        num_gone = 0
        for path, mtime_s, _ in self._files(self._root):
            if self._is_old(mtime_s, now_s):
                with contextlib.suppress(OSError):
                    path.unlink()
                    num_gone += 1
        for path in self._root.rglob(f"*{PARTIAL_SUFFIX}"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime + self._partial_ttl_s <= now_s:
                    path.unlink()
        return num_gone

    # --- inside ------------------------------------------------------------------------------------------------------

    def _folder(self, fingerprint: str) -> Path:
        if not FINGERPRINT.fullmatch(fingerprint) or fingerprint.startswith("."):
            raise InvalidInput.of([Problem("fingerprint", show(fingerprint), "letters, digits, '.', '_' and '-'")])
        return self._root / fingerprint

    def _place(self, key: StoreKey) -> Path:
        return self._folder(key.fingerprint) / str(int(key.group)) / f"{key.block_hash.hex()}{SUFFIX}"

    def _is_old(self, mtime_s: float, now_s: float) -> bool:
        return self._ttl_s > 0 and mtime_s + self._ttl_s <= now_s

    @staticmethod
    def _files(folder: Path) -> Sequence[tuple[Path, float, int]]:
        """(path, time of the put, size); other processes may remove files meanwhile."""
        out = []
        for path in folder.rglob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                out.append((path, stat.st_mtime, stat.st_size))
        return out

    def _make_room(self, num_bytes: int) -> bool:
        if not self._size_limit_bytes:
            return True
        files = sorted(self._files(self._root), key=lambda f: f[1])
        total = sum(size for _, _, size in files)
        if num_bytes > self._size_limit_bytes:
            return False
        for path, _, size in files:
            if total + num_bytes <= self._size_limit_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                self.counters.num_evicted += 1
            total -= size
        return True

    @staticmethod
    def _header(shards: Sequence[np.ndarray], now_s: float) -> bytes:
        digests = digests_of(shards)
        header: dict[str, Any] = {
            "__metadata__": {"format": FORMAT, "digests": ",".join(digests), "put_s": f"{now_s:.3f}"}
        }
        offset = 0
        for number, shard in enumerate(shards):
            end = offset + shard.nbytes
            header[f"shard{number}"] = {"dtype": "U8", "shape": [shard.nbytes], "data_offsets": [offset, end]}
            offset = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text

    @staticmethod
    def _read(file: Any, targets: Sequence[np.ndarray]) -> bool:
        """Read into `targets`, in chunks, with the digests over the destination."""
        (size,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
        if size > MAX_HEADER_BYTES:
            raise ValueError(f"a header of {size} bytes; at most {MAX_HEADER_BYTES}")
        header = json.loads(file.read(size))
        meta = header.pop("__metadata__", {})
        digests = str(meta.get("digests", "")).split(",")
        if meta.get("format") != FORMAT or len(header) != len(targets) or len(digests) != len(targets):
            raise ValueError(
                f"format {meta.get('format')!r} with {len(header)} shards; expected {FORMAT}, {len(targets)}"
            )
        for number, target in enumerate(targets):
            begin, end = header[f"shard{number}"]["data_offsets"]
            if end - begin != target.nbytes:
                raise ValueError(f"shard {number} has {end - begin} bytes; expected {target.nbytes}")
            file.seek(8 + size + begin)
            hasher, flat = Hasher(), target.reshape(-1).view(np.uint8)
            for start in range(0, flat.size, CACHE_BYTES):
                chunk = flat[start : start + CACHE_BYTES]
                if file.readinto(chunk) != chunk.size:
                    return False
                hasher.update(chunk)
            if hasher.digest().hex() != digests[number]:
                return False
        return True
