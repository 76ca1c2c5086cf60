"""The tokenizer of the demo model against llama.cpp's (ids recorded by tests/data/make_llamacpp_ids.py)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data.texts import TEXTS
from octavo.hub.resolve import resolve_model
from octavo.text.detokenize import IncrementalDetokenizer
from octavo.text.template import ChatTemplate
from octavo.text.tokenizer import load_tokenizer

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "smollm2_llamacpp_ids.json").read_text())


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(resolve_model("smollm2-135m"))


def test_there_are_two_hundred_different_texts():
    assert len(TEXTS) == len(set(TEXTS)) == len(RECORDED) == 200


@pytest.mark.parametrize("number", range(200))
def test_ids_equal_those_of_llama_cpp(tokenizer, number):
    assert tokenizer.encode(TEXTS[number]) == RECORDED[number]


def test_every_text_survives_the_round_trip(tokenizer):
    assert [tokenizer.decode(ids, skip_special_tokens=False) for ids in RECORDED] == list(TEXTS)


@pytest.mark.parametrize("skip", [True, False])
def test_streamed_text_equals_unstreamed_text(tokenizer, skip):
    for ids in RECORDED:
        for end in {len(ids), len(ids) // 2, max(0, len(ids) - 1)}:
            stream = IncrementalDetokenizer(tokenizer, skip)
            text = "".join([*(stream.push(i) for i in ids[:end]), stream.finish()])
            assert text == tokenizer.decode(ids[:end], skip)


def test_chat_prompt(tokenizer):
    template = ChatTemplate(tokenizer.chat_template, tokenizer)
    text = template.render([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert [i for i in ids if i in tokenizer.special_ids] == [1, 2, 1, 2, 1]
