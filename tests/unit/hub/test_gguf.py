from __future__ import annotations

import struct

import numpy as np
import pytest

from gguf_files import LLAMA, write_gguf
from octavo.errors import InvalidInput
from octavo.hub.gguf import GGUFFile


def test_reads_metadata_of_every_kind(tmp_path):
    metadata = {"a": "héllo", "b": 7, "c": True, "d": 0.5, "e": ["x", "", "ü"], "f": [1, -2], "g": [0.25]}
    assert GGUFFile.open(write_gguf(tmp_path / "m.gguf", metadata)).metadata == metadata


def test_gives_tensors_in_row_major_shape_with_their_bytes(tmp_path):
    first, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((5,), np.float32)
    file = GGUFFile.open(write_gguf(tmp_path / "m.gguf", LLAMA, {"first": first, "second": second}))
    info = file.tensors["first"]
    assert (info.shape, info.type_name, info.num_bytes) == ((2, 3), "F32", 24)
    assert info.offset % 32 == 0
    np.testing.assert_array_equal(file.data(info).view(np.float32).reshape(info.shape), first)
    np.testing.assert_array_equal(file.data(file.tensors["second"]).view(np.float32), second)


def test_a_view_outlives_its_file(tmp_path):
    file = GGUFFile.open(write_gguf(tmp_path / "m.gguf", LLAMA, {"t": np.full((4,), 3.0)}))
    data = file.data(file.tensors["t"])
    del file
    assert data.view(np.float32).tolist() == [3.0] * 4
    assert not data.flags.writeable


def test_every_truncation_is_one_clear_error(tmp_path):
    whole = write_gguf(tmp_path / "m.gguf", LLAMA, {"t": np.ones((8,))}).read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match="model: ") as caught:
            GGUFFile.open(path)
        assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"PK\x03\x04" + b"\0" * 40, "GGUF header"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60) + b"x" * 40, "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0) + b"\0" * 24, "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + struct.pack("<Q1sIB", 1, b"k", 0, 5) * 2, "'k' appears twice"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99) + b"\0" * 9, "type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 8, 2**61), "truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1s", 1, b"k") + b"\x09\0\0\0" * 9, "truncated"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path, body, said):
    path = tmp_path / "m.gguf"
    path.write_bytes(body)
    with pytest.raises(InvalidInput, match=said):
        GGUFFile.open(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot read .*none\.gguf"):
        GGUFFile.open(tmp_path / "none.gguf")
