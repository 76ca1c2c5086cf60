from __future__ import annotations

import random

import pytest

from data.texts import TEXTS
from octavo.text.detokenize import IncrementalDetokenizer
from tiny_tokenizers import byte_level, sentence_piece


@pytest.fixture(params=["byte_level", "sentence_piece"])
def tokenizer(request, tmp_path):
    return byte_level() if request.param == "byte_level" else sentence_piece(tmp_path)


def streamed(tokenizer, ids, **options):
    stream = IncrementalDetokenizer(tokenizer, **options)
    return [*(stream.push(i) for i in ids), stream.finish()]


@pytest.mark.parametrize("is_continuation", [True, False])
@pytest.mark.parametrize("skip", [True, False])
def test_streamed_equals_unstreamed_on_every_text(tokenizer, is_continuation, skip):
    for text in TEXTS:
        ids = tokenizer.encode(text)
        whole = tokenizer.decode(ids, skip, is_continuation=is_continuation)
        assert "".join(streamed(tokenizer, ids, skip_special_tokens=skip, is_continuation=is_continuation)) == whole


def test_streamed_equals_unstreamed_on_random_ids(tokenizer):
    rng = random.Random(5)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.vocab_size + 3) for _ in range(rng.randrange(40))]
        for skip in (True, False):
            whole = tokenizer.decode(ids, skip, is_continuation=True)
            assert "".join(streamed(tokenizer, ids, skip_special_tokens=skip)) == whole


def test_every_text_survives_the_round_trip(tokenizer):
    for text in TEXTS:
        if "<s>" not in text:
            assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False), skip_special_tokens=False) == text


def test_no_broken_character_is_shown_before_it_is_complete(tokenizer):
    ids = tokenizer.encode("né 你好 👩🏽‍🚀!")
    assert all("\ufffd" not in part for part in streamed(tokenizer, ids))


def test_an_unfinished_character_ends_as_one_replacement(tokenizer):
    ids = tokenizer.encode("ok👍")[:-1]
    parts = streamed(tokenizer, ids)
    assert parts[-1] == "\ufffd"
    assert "".join(parts) == tokenizer.decode(ids, is_continuation=True)


def test_output_keeps_the_leading_space_that_continues_the_prompt(tmp_path):
    tokenizer = sentence_piece(tmp_path)
    ids = tokenizer.encode("the hello", add_special_tokens=False)
    assert tokenizer.decode(ids) == "the hello"
    assert "".join(streamed(tokenizer, ids)) == " the hello"
    prompt, output = ids[:1], ids[1:]
    assert tokenizer.decode(prompt) + "".join(streamed(tokenizer, output)) == "the hello"
