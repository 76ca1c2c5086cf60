import random

import pytest

from octavo.errors import ErrorDetail
from octavo.gateway.cursor import SequenceCursor
from octavo.request import Emission, TokenLogprobs


def emission(index: int, *tokens: int, finish: str | None = None) -> Emission:
    logprobs = [TokenLogprobs(-float(t), 1) for t in tokens]
    return Emission("r", 1, 0, index, list(tokens), logprobs=logprobs, finish_reason=finish)


def tokens(emissions: list[Emission]) -> list[int]:
    return [t for e in emissions for t in e.token_ids]


def test_in_order_passes_through():
    cursor = SequenceCursor(0)
    assert tokens(cursor.accept(emission(0, 5)) + cursor.accept(emission(1, 6, 7))) == [5, 6, 7]
    assert cursor.journal == [5, 6, 7]


def test_known_indexes_are_cut_with_their_logprobs():
    cursor = SequenceCursor(0)
    cursor.accept(emission(0, 5, 6))
    (cut,) = cursor.accept(emission(1, 6, 7))
    assert (cut.index_from, cut.token_ids, [e.logprob for e in cut.logprobs]) == (2, [7], [-7.0])


def test_double_is_dropped():
    cursor = SequenceCursor(0)
    cursor.accept(emission(0, 5))
    assert cursor.accept(emission(0, 5)) == []


def test_gap_holds_until_filled():
    cursor = SequenceCursor(0)
    assert cursor.accept(emission(1, 6)) == []
    assert cursor.has_gap
    assert tokens(cursor.accept(emission(0, 5))) == [5, 6]
    assert not cursor.has_gap


def test_finish_ahead_of_a_gap_waits():
    cursor = SequenceCursor(0)
    cursor.accept(emission(2, 7, finish="stop"))
    assert not cursor.is_ended
    out = cursor.accept(emission(0, 5, 6))
    assert tokens(out) == [5, 6, 7]
    assert cursor.finish_reason == "stop"


def test_finish_whose_tokens_are_known_still_ends():
    cursor = SequenceCursor(0)
    cursor.accept(emission(0, 5))
    (end,) = cursor.accept(emission(0, 5, finish="length"))
    assert (end.token_ids, end.finish_reason, end.index_from) == ([], "length", 1)


def test_nothing_after_the_end():
    cursor = SequenceCursor(0)
    cursor.accept(emission(0, 5, finish="stop"))
    assert cursor.accept(emission(1, 6)) == []


def test_error_ends_also_behind_a_gap():
    cursor = SequenceCursor(0)
    failed = Emission("r", 1, 0, 9, [], error=ErrorDetail("internal", "x"))
    assert len(cursor.accept(failed)) == 1
    assert cursor.is_ended


def test_resumed_sequence_goes_on_after_its_journal():
    cursor = SequenceCursor(0, [1, 2])
    assert tokens(cursor.accept(emission(2, 3))) == [3]


@pytest.mark.parametrize("seed", range(30))
def test_any_drop_double_and_reorder_gives_the_same_tokens(seed: int):
    rng = random.Random(seed)
    frames, index = [], 0
    for _ in range(40):
        size = rng.randint(1, 3)
        frames.append(emission(index, *range(index, index + size)))
        index += size
    frames[-1].finish_reason = "length"
    sent = [f for f in frames if rng.random() > 0.2]
    sent += [f for f in frames if rng.random() < 0.3]
    rng.shuffle(sent)
    cursor = SequenceCursor(0)
    out: list[Emission] = []
    for frame in sent:
        out += cursor.accept(frame)
        cursor.check_integrity()
    while not cursor.is_ended:
        # What Resend brings: everything from the next index on.
        for frame in frames:
            if frame.index_from + len(frame.token_ids) > cursor.next_index:
                out += cursor.accept(frame)
    assert tokens(out) == list(range(index))
    assert sum(e.finish_reason is not None for e in out) == 1
