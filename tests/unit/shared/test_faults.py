"""Fault points."""

from __future__ import annotations

import pytest

from octavo import faults
from octavo.errors import InternalError, InvalidInput


@pytest.fixture(autouse=True)
def _disarm():
    yield
    faults.arm("")


def run(spec: str, frames: str) -> str:
    faults.arm(spec)
    out: list[bytes] = []
    for letter in frames:
        faults.frame("worker.token_frame", letter.encode(), out.append)
    return b"".join(out).decode()


def test_nothing_armed_sends_everything():
    assert run("", "abc") == "abc"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("#2:drop", "acde"),
        ("#2-3:drop", "ade"),
        ("%2:drop", "ace"),
        ("#2:double", "abbcde"),
        ("#2:reorder", "acbde"),
        ("#1:drop,worker.token_frame#3:double", "bccde"),
    ],
)
def test_frames(spec: str, expected: str):
    assert run(f"worker.token_frame{spec}", "abcde") == expected


def test_a_held_frame_goes_out_by_its_own_sender():
    faults.arm("p#1:reorder")
    first: list[bytes] = []
    second: list[bytes] = []
    faults.frame("p", b"a", first.append)
    faults.frame("p", b"b", second.append)
    assert (first, second) == ([b"a"], [b"b"])


def test_raise_at_the_third_visit():
    faults.arm("p#3:raise")
    faults.point("p")
    faults.point("p")
    with pytest.raises(InternalError, match="p was told"):
        faults.point("p")
    faults.point("p")


def test_a_bad_spec_is_refused():
    with pytest.raises(InvalidInput, match="explode"):
        faults.parse("p:explode")
