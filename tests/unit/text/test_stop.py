from __future__ import annotations

import itertools
import random

import pytest

from octavo.text.stop import StopMatcher


def run(text, stops, cuts=(), **options):
    matcher = StopMatcher(stops, **options)
    out, borders = [], [0, *cuts, len(text)]
    for start, end in itertools.pairwise(borders):
        released, stop = matcher.push(text[start:end])
        out.append(released)
        if stop is not None:
            return "".join(out), stop
    return "".join(out) + matcher.flush(), None


def expected(text, stops, keeps_stop=False):
    """The definition: the first prefix of the text that ends in a stop string, the longest one that it ends in."""
    for end in range(1, len(text) + 1):
        found = [s for s in stops if text[:end].endswith(s)]
        if found:
            stop = max(found, key=len)
            return text[: end if keeps_stop else end - len(stop)], stop
    return text, None


@pytest.mark.parametrize("keeps_stop", [False, True])
def test_equals_its_definition_for_every_cut(keeps_stop):
    rng = random.Random(11)
    for _ in range(2000):
        text = "".join(rng.choice("ab") for _ in range(rng.randrange(1, 14)))
        stops = ["".join(rng.choice("ab") for _ in range(rng.randrange(1, 5))) for _ in range(rng.randrange(1, 4))]
        cuts = sorted(rng.sample(range(len(text) + 1), rng.randrange(len(text) + 1)))
        assert run(text, stops, cuts, keeps_stop=keeps_stop) == expected(text, stops, keeps_stop)


def test_holds_back_only_what_may_become_a_stop():
    matcher = StopMatcher(["\nUser:"])
    assert matcher.push("Hi\n") == ("Hi", None)
    assert matcher.push("Use") == ("", None)
    assert matcher.push("ful") == ("\nUseful", None)
    assert matcher.push(" \nUser: x") == (" ", "\nUser:")


def test_without_stops_nothing_is_held():
    assert StopMatcher([]).push("anything") == ("anything", None)


def test_a_match_must_end_in_armed_text():
    matcher = StopMatcher(["ab"])
    assert matcher.push("ab a", is_armed=False) == ("ab ", None)
    assert matcher.push("b") == ("", "ab")
