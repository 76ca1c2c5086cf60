"""What makes two workers incompatible; file and segment formats."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

from octavo.errors import InvalidInput
from octavo.testing.connector_engine import Shape
from octavo.transfer.connector.file import FileStore
from octavo.transfer.connector.shm import make_segment, map_segment
from octavo.transfer.connector.store import StoreKey
from octavo.transfer.message import PEER, Hello, Terms
from octavo.transfer.terms import incompatibilities
from octavo.wire.message import UnknownVersion

TERMS = Shape().terms("p", 0)
KEY = StoreKey("layout", 1, b"\xab" * 16)


def other(**changes: object) -> Terms:
    layout = msgspec.structs.replace(TERMS.layout, **changes.pop("layout", {}))  # type: ignore[arg-type]
    return msgspec.structs.replace(TERMS, layout=layout, **changes)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (other(content_id="x"), "content_id: x there, weights here"),
        (other(protocol_min=2, protocol_max=3), "protocol: 2 to 3 there, 1 to 1 here"),
        (other(layout={"dtype": "bfloat16"}), "layout.dtype: bfloat16 there, float32 here"),
        (other(layout={"head_dim": 16}), "layout.head_dim: 16 there, 8 here"),
        (other(layout={"groups": TERMS.layout.groups[:1]}), "layout.groups: the groups of layers differ"),
        (other(algorithms=("xxh9",)), "algorithms: xxh9 on one side only"),
    ],
)
def test_the_reason_is_named(terms: Terms, reason: str) -> None:
    (found,) = incompatibilities(TERMS, terms)
    assert found.startswith(reason)


def test_block_size_and_shards_may_differ() -> None:
    assert incompatibilities(TERMS, Shape(64, ((0, 2), (2, 2))).terms("q", 0)) == []
    assert incompatibilities(TERMS, other(protocol_min=0, protocol_max=1)) == []


def test_messages_survive_the_wire_and_unknown_versions_are_refused() -> None:
    hello = Hello("t", 3, TERMS, 32, [b"h"], b"ns")
    frame = PEER.encode(hello)
    assert PEER.decode(frame) == hello
    with pytest.raises(UnknownVersion):
        PEER.decode(b"\x09" + frame[1:])


def test_a_stored_value_is_a_safetensors_file(tmp_path: Path) -> None:
    value = [np.arange(40, dtype=np.uint8), np.arange(8, dtype=np.uint8)]
    FileStore(str(tmp_path)).put(KEY, value, 5.0)
    found = load_file(tmp_path / "layout" / "1" / f"{'ab' * 16}.safetensors")
    assert sorted(found) == ["shard0", "shard1"]
    assert all(np.array_equal(found[f"shard{i}"], shard) for i, shard in enumerate(value))


@pytest.mark.parametrize("fingerprint", ["", "..", "a/b", "a" * 300])
def test_a_fingerprint_cannot_leave_the_folder(tmp_path: Path, fingerprint: str) -> None:
    with pytest.raises(InvalidInput, match="fingerprint"):
        FileStore(str(tmp_path)).put(KEY._replace(fingerprint=fingerprint), [], 0.0)


def test_nobody_else_can_write_a_segment() -> None:
    fd, owner = make_segment("test", 4096)
    reader = map_segment(fd)
    owner[7] = 9
    assert reader[7] == 9
    assert not reader.flags.writeable
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 4096)
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 1)
    os.close(fd)
