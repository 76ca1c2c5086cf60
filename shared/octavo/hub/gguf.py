"""A small memory-mapped reader of GGUF files: header, metadata, tensor infos and raw tensor bytes.

It follows the GGUF specification, versions 2 and 3, little endian.  It knows nothing of models: turning metadata into
a model configuration is `gguf_config`, decoding the block types is the engine's loader.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import InvalidInput

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_ARRAY_DEPTH = 4

BLOCK_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
"""GGML type id → (name, elements per block, bytes per block)."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape` is row-major as numpy and torch have it (the last dimension is contiguous), `type_name` a
    name of `BLOCK_TYPES`, `offset` counts bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    num_bytes: int


class _Cursor:
    """Reads values in order from a buffer; every read past its end raises `struct.error` or `IndexError`."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self.position = 0
        self.size = len(buffer)

    def u32(self) -> int:
        value: int = _U32.unpack_from(self.buffer, self.position)[0]
        self.position += 4
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self.buffer, self.position)[0]
        self.position += 8
        return value

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """`count` strings, each a 64-bit length and UTF-8 bytes; broken UTF-8 is replaced."""
        buffer, position, size, unpack = self.buffer, self.position, self.size, _U64.unpack_from
        if count > (size - position) // 8:
            raise IndexError(f"{count} strings do not fit")
        out = []
        for _ in range(count):
            start = position + 8
            position = start + unpack(buffer, position)[0]
            if position > size:
                raise IndexError(f"a string at byte {start} runs past the end")
            out.append(buffer[start:position].decode("utf-8", "replace"))
        self.position = position
        return out

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(depth + 1)
        return self.scalars(kind, 1)[0]

    def scalars(self, kind: int, count: int) -> list[Any]:
        code = _SCALARS.get(kind)
        if code is None:
            raise ValueError(f"unknown metadata type {kind} at byte {self.position}")
        num_bytes = count * struct.calcsize("<" + code)
        if num_bytes > self.size - self.position:
            raise IndexError(f"{count} values at byte {self.position} do not fit")
        values = list(struct.unpack_from(f"<{count}{code}", self.buffer, self.position))
        self.position += num_bytes
        return values

    def array(self, depth: int) -> list[Any]:
        if depth > MAX_ARRAY_DEPTH:
            raise ValueError("arrays are nested too deep")
        kind, count = self.u32(), self.u64()
        if kind == _STRING:
            return self.strings(count)
        if kind == _ARRAY:
            return [self.array(depth + 1) for _ in range(count)]
        return self.scalars(kind, count)


class GGUFFile:
    """An open GGUF file.  The map stays alive as long as this object or any array that `data` returned."""

    def __init__(self, path: Path, metadata: dict[str, Any], tensors: dict[str, TensorInfo], buffer: mmap.mmap) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self.header_bytes = min((t.offset for t in tensors.values()), default=len(buffer))
        self._bytes = np.frombuffer(buffer, dtype=np.uint8)

    @classmethod
    def open(cls, path: str | Path) -> GGUFFile:
        """Map the file and read its header; raises `InvalidInput` for a missing, broken or truncated file."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"model: cannot read {path}: {error}", param="model") from None
        try:
            metadata, tensors = _read_header(_Cursor(buffer))
        except (struct.error, IndexError) as error:
            raise _broken(path, f"the file is truncated ({error})") from None
        except ValueError as error:
            raise _broken(path, str(error)) from None
        return cls(path, metadata, tensors, buffer)

    def data(self, info: TensorInfo) -> np.ndarray:
        """The tensor's bytes as stored: a read-only uint8 view `[num_bytes]` of the map, no copy."""
        return self._bytes[info.offset : info.offset + info.num_bytes]


def _broken(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"model: {path} is not a GGUF file that can be used: {reason}", param="model")


def _read_header(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    if cursor.size < 24 or cursor.buffer[:4] != MAGIC:
        raise ValueError("it does not begin with a GGUF header")
    cursor.position = 4
    version = cursor.u32()
    if version not in VERSIONS:
        is_big_endian = version & 0xFFFF == 0
        raise ValueError("it is big endian" if is_big_endian else f"version {version}; versions 2 and 3 are read")
    num_tensors, num_pairs = cursor.u64(), cursor.u64()
    metadata = _unique(num_pairs, lambda: (cursor.string(), cursor.value(cursor.u32())), "metadata key")
    raw = _unique(num_tensors, lambda: _read_tensor(cursor), "tensor")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment is {alignment!r}")
    base = -(-cursor.position // alignment) * alignment
    tensors = {name: _place(name, base, cursor.size, *rest) for name, rest in raw.items()}
    return metadata, tensors


def _unique(count: int, read: Callable[[], tuple[str, Any]], noun: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _ in range(count):
        key, value = read()
        if key in out:
            raise ValueError(f"{noun} {key!r} appears twice")
        out[key] = value
    return out


def _read_tensor(cursor: _Cursor) -> tuple[str, tuple[tuple[int, ...], int, int]]:
    name = cursor.string()
    num_dimensions = cursor.u32()
    if num_dimensions > MAX_DIMENSIONS:
        raise ValueError(f"tensor {name!r} has {num_dimensions} dimensions")
    shape = tuple(reversed([cursor.u64() for _ in range(num_dimensions)]))
    return name, (shape, cursor.u32(), cursor.u64())


def _place(name: str, base: int, size: int, shape: tuple[int, ...], kind: int, relative: int) -> TensorInfo:
    if kind not in BLOCK_TYPES:
        raise ValueError(f"tensor {name!r} has the unknown type {kind}")
    type_name, block_elements, block_bytes = BLOCK_TYPES[kind]
    num_elements = math.prod(shape)
    if shape and shape[-1] % block_elements:
        raise ValueError(f"tensor {name!r}: rows of {shape[-1]} do not divide into {type_name} blocks")
    num_bytes = num_elements // block_elements * block_bytes
    offset = base + relative
    if offset + num_bytes > size:
        raise IndexError(f"tensor {name!r} ends at byte {offset + num_bytes} of {size}")
    return TensorInfo(name, shape, type_name, offset, num_bytes)
