from __future__ import annotations

import itertools
import random

import pytest

from gguf_files import LLAMA, write_gguf
from octavo.errors import InvalidInput
from octavo.text import gguf_tokenizer
from octavo.text.pieces import byte_level_alphabet
from octavo.text.tokenizer import Tokenizer
from tiny_tokenizers import byte_level_backend, sentence_piece


def merged_by_score(text, tokens, scores):
    """SentencePiece BPE by definition: join the neighbours whose piece scores highest, leftmost first, until none."""
    symbols, ids = list(text), {t: i for i, t in enumerate(tokens)}
    while True:
        found = [(-scores[ids[a + b]], i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in ids]
        if not found:
            return [ids[s] for s in symbols]
        i = min(found)[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


def test_scores_merge_as_sentence_piece_defines_it(tmp_path):
    rng = random.Random(3)
    letters = list("abc▁")
    pieces = sorted({"".join(rng.choice("abc▁") for _ in range(rng.randrange(2, 5))) for _ in range(40)})
    rng.shuffle(pieces)
    tokens = ["<unk>", *letters, *pieces]
    scores = [0.0, *[-1000.0] * 4, *(-float(i) for i in range(len(pieces)))]
    path = write_gguf(
        tmp_path / "m.gguf",
        LLAMA
        | {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.token_type": [2, *[1] * (len(tokens) - 1)],
            "tokenizer.ggml.add_space_prefix": False,
        },
    )
    tokenizer = Tokenizer(gguf_tokenizer.load(path))
    for _ in range(300):
        text = "".join(rng.choice("abc ") for _ in range(rng.randrange(20)))
        assert tokenizer.encode(text) == merged_by_score(text.replace(" ", "▁"), tokens, scores)


def test_unknown_characters_fall_back_to_their_bytes(tmp_path):
    tokenizer = sentence_piece(tmp_path)
    ids = tokenizer.encode("好", add_special_tokens=False)
    assert [tokenizer.token_bytes(i) for i in ids] == [b" ", b"\xe5", b"\xa5", b"\xbd"]
    assert tokenizer.decode(ids) == "好"


def test_sentence_piece_adds_bos_and_a_space_unless_told_otherwise(tmp_path):
    assert sentence_piece(tmp_path).encode("an")[0] == 1
    assert sentence_piece(tmp_path).decode(sentence_piece(tmp_path).encode("an")) == "an"
    plain = sentence_piece(
        tmp_path,
        **{"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True},
        **{"tokenizer.ggml.add_space_prefix": False},
    )
    ids = plain.encode(" an")
    assert ids[-1] == 2
    assert 1 not in ids
    assert plain.decode(ids) == " an"


def byte_level_gguf(tmp_path, pre, extra_tokens=(), merges=()):
    tokens = ["<|end|>", "<tool>", *byte_level_alphabet(), *extra_tokens]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 4, *[1] * (len(tokens) - 2)],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.bos_token_id": 0,
    }
    if pre:
        metadata["tokenizer.ggml.pre"] = pre
    if merges:
        metadata["tokenizer.ggml.merges"] = list(merges)
    return Tokenizer(gguf_tokenizer.load(write_gguf(tmp_path / "m.gguf", LLAMA | metadata)))


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("smollm", "a 123", ["a", " ", "1", "2", "3"]),
        ("gpt-2", "a 123", ["a", " 12", "3"]),
        ("default", "a 123", ["a", " 12", "3"]),
        ("qwen2", "a 123", ["a", " ", "1", "2", "3"]),
        ("llama-bpe", "12312", ["123", "12"]),
        ("tekken", "12", ["1", "2"]),
    ],
)
def test_pre_tokenizers_cut_digits_their_own_way(tmp_path, pre, text, expected):
    tokenizer = byte_level_gguf(tmp_path, pre, ["12", "Ġ12", "123"], ["1 2", "Ġ 12", "12 3"])
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert [tokenizer.piece(i) for i in ids] == expected


def test_byte_level_tokenizers_add_bos_only_where_the_model_family_does(tmp_path):
    assert byte_level_gguf(tmp_path, "smollm").encode("a")[0] != 0
    assert byte_level_gguf(tmp_path, "llama-bpe").encode("a")[0] == 0


def test_control_tokens_are_special_and_user_defined_ones_are_text(tmp_path):
    tokenizer = byte_level_gguf(tmp_path, "smollm")
    ids = tokenizer.encode("a<|end|><tool>b")
    assert ids[1:3] == [0, 1]
    assert tokenizer.decode(ids) == "a<tool>b"
    assert tokenizer.special_ids == {0}


def test_the_alphabet_is_that_of_the_tokenizers_library():
    assert set(byte_level_alphabet()) <= set(byte_level_backend().get_vocab())
    assert sorted(byte_level_alphabet().values()) == list(range(256))


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({}, "holds no vocabulary"),
        ({"tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": ["a"]}, "kind 't5' is not supported"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.pre": "other"},
            "pre-tokenizer 'other' is not supported",
        ),
    ],
)
def test_what_is_unsupported_names_the_way_out(tmp_path, metadata, said):
    path = write_gguf(tmp_path / "m.gguf", LLAMA | metadata)
    with pytest.raises(InvalidInput, match=f"{said}.*give --tokenizer"):
        gguf_tokenizer.load(path)
