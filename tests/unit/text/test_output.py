from __future__ import annotations

import pytest

from octavo.errors import InternalError
from octavo.request import Emission, TokenLogprobs
from octavo.sampling_params import SamplingParams
from octavo.text.output import OutputAssembler
from tiny_tokenizers import byte_level


def assembler(**settings):
    return OutputAssembler(byte_level(), SamplingParams(**settings))


def emission(index_from, ids, reason=None, stop_reason=None, logprobs=None):
    return Emission("r", 0, 0, index_from, ids, logprobs, reason, stop_reason)


def one_by_one(out, ids, reason="length"):
    deltas = [out.push(emission(i, [token], reason if i == len(ids) - 1 else None)) for i, token in enumerate(ids)]
    return "".join(d.text for d in deltas), [t for d in deltas for t in d.token_ids], deltas


def test_text_and_ids_of_a_whole_stream():
    ids = byte_level().encode("Grüße 👋 an alle!")
    text, seen, deltas = one_by_one(assembler(), ids)
    assert (text, seen, deltas[-1].finish_reason) == ("Grüße 👋 an alle!", ids, "length")


@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_a_stop_string_across_tokens_cuts_text_and_ids(step):
    ids = byte_level().encode("one two STOP three")
    out, text, seen, ends = assembler(stop=("o STO",)), "", [], []
    for start in range(0, len(ids), step):
        delta = out.push(emission(start, ids[start : start + step]))
        text, seen = text + delta.text, seen + delta.token_ids
        ends += [(delta.finish_reason, delta.stop_reason)] * bool(delta.finish_reason)
    assert (text, ends) == ("one tw", [("stop", "o STO")])
    assert byte_level().decode(seen[:-1]).find("o STO") < 0 <= byte_level().decode(seen).find("o STO")
    assert out.is_finished


def test_the_stop_string_stays_on_request():
    ids = byte_level().encode("one two three")
    assert one_by_one(assembler(stop=("two",), include_stop_str_in_output=True), ids)[0] == "one two"


def test_logprobs_are_cut_with_the_ids():
    ids = byte_level().encode("abc STOP def")
    logprobs = [TokenLogprobs(-float(i), 1) for i in range(len(ids))]
    delta = assembler(stop=("STOP",), logprobs=0).push(emission(0, ids, logprobs=logprobs))
    assert delta.logprobs == logprobs[: len(delta.token_ids)]
    assert 0 < len(delta.token_ids) < len(ids)


def test_what_was_held_back_comes_with_the_end():
    ids = byte_level().encode("so ST")
    text, _, deltas = one_by_one(assembler(stop=("STOP",)), ids)
    assert (text, deltas[-1].finish_reason) == ("so ST", "length")


def test_the_text_of_the_token_that_ended_it_is_left_out():
    tokenizer = byte_level()
    ids = [*tokenizer.encode("hi"), tokenizer.encode("!")[0]]
    assert one_by_one(assembler(), ids, "stop")[:2] == ("hi", ids)
    assert one_by_one(assembler(include_stop_str_in_output=True), ids, "stop")[0] == "hi!"


def test_an_end_token_is_never_text():
    ids = [*byte_level().encode("hi"), 1]
    assert one_by_one(assembler(skip_special_tokens=False), ids, "stop")[0] == "hi"


def test_special_tokens_are_text_only_on_request():
    ids = byte_level().encode("a<|start|>b")
    assert one_by_one(assembler(), ids)[0] == "ab"
    assert one_by_one(assembler(skip_special_tokens=False), ids)[0] == "a<|start|>b"


def test_min_tokens_comes_before_stop_strings():
    tokenizer = byte_level()
    ids = [token for word in ("x", "!", "x", "!") for token in tokenizer.encode(word)]
    assert one_by_one(assembler(stop=("!",), min_tokens=2), ids)[0] == "x!x"


def test_known_tokens_are_skipped_and_gaps_refused():
    ids = byte_level().encode("hello world")
    out = assembler()
    out.push(emission(0, ids[:2]))
    assert out.push(emission(0, ids[:3])).token_ids == ids[2:3]
    with pytest.raises(InternalError, match="goes on at token 5, after 3 tokens"):
        out.push(emission(5, ids[:1]))


def test_nothing_follows_the_end():
    ids = byte_level().encode("a.b")
    out = assembler(stop=(".",))
    out.push(emission(0, ids))
    late = out.push(emission(len(ids), ids, "length"))
    assert (late.text, late.token_ids, late.finish_reason) == ("", [], None)


def test_without_detokenizing_there_are_ids_only():
    ids = byte_level().encode("hello")
    delta = assembler(detokenize=False).push(emission(0, ids, "length"))
    assert (delta.text, delta.token_ids) == ("", ids)
