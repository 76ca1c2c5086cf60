"""A reply's text does not depend on how many tokens are turned into text at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.llm.frontend import Prepared
from octavo.llm.reply import TOKENS_AT_ONCE, Reply
from octavo.request import Emission, Request, SequenceInput
from octavo.sampling_params import SamplingParams
from octavo.testing.tiny_tokenizer import write_tiny_tokenizer
from octavo.text.json_tokenizer import load
from octavo.text.tokenizer import Tokenizer

NUM_TOKENS = 5 * TOKENS_AT_ONCE + 3


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    write_tiny_tokenizer(tmp_path)
    return Tokenizer(load(tmp_path))


def make_reply(tokenizer: Tokenizer, **params: object) -> Reply:
    sampling = SamplingParams(seed=0, max_tokens=NUM_TOKENS, ignore_eos=True, **params)  # type: ignore[arg-type]
    return Reply(Prepared(Request("r", 1, [1, 2], sampling, [SequenceInput(0)]), None), tokenizer)


def emissions(num: int = NUM_TOKENS, reason: str | None = "length") -> list[Emission]:
    ids = [(i * 89) % 500 for i in range(num)]
    out = [Emission("r", 1, 0, i, [token]) for i, token in enumerate(ids)]
    out[0].num_cached_tokens = 0
    out[-1].finish_reason = reason
    return out


def test_text_made_in_batches_equals_text_made_at_once(tokenizer: Tokenizer) -> None:
    lazy, eager = make_reply(tokenizer), make_reply(tokenizer)
    for a, b in zip(emissions(), emissions(), strict=True):
        lazy.push(a)
        eager.push(b)
        eager.output()
    assert lazy.is_finished
    assert lazy.output() == eager.output()
    assert len(lazy.output().outputs[0].token_ids) == NUM_TOKENS


def test_an_output_has_every_token_that_has_come(tokenizer: Tokenizer) -> None:
    reply = make_reply(tokenizer)
    for num, emission in enumerate(emissions(reason=None), 1):
        reply.push(emission)
        assert len(reply.output().outputs[0].token_ids) == num


def test_an_aborted_reply_keeps_what_had_come(tokenizer: Tokenizer) -> None:
    reply = make_reply(tokenizer)
    for emission in emissions(7, reason=None):
        reply.push(emission)
    reply.abort()
    assert reply.is_finished
    assert len(reply.output().outputs[0].token_ids) == 7
