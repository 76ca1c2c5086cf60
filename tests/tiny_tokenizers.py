"""Small tokenizers for tests: byte-level BPE, and SentencePiece-style BPE with byte fallback."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tokenizers import AddedToken, decoders, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from data.texts import TEXTS
from gguf_files import LLAMA, write_gguf
from octavo.text import gguf_tokenizer
from octavo.text.parts import TokenizerParts
from octavo.text.tokenizer import Tokenizer

BOS, EOS = "<|start|>", "<|end|>"


@cache
def byte_level_backend() -> Backend:
    """A byte-level BPE of 600 tokens trained on the test texts; ids 0 and 1 are special."""
    backend = Backend(BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


@cache
def byte_level() -> Tokenizer:
    return Tokenizer(TokenizerParts(byte_level_backend(), 0, 1, special_tokens={"bos_token": BOS, "eos_token": EOS}))


def sentence_piece(folder: Path, **metadata: object) -> Tokenizer:
    """A SentencePiece-style tokenizer, through a GGUF file: <unk>, <s>, </s>, 256 bytes, letters and a few words."""
    pieces = ["▁", *"abcdefghijklmnopqrstuvwxyz.,éü你", "▁t", "he", "▁the", "in", "an", "▁an", "▁and", "▁hello", "ll"]
    pieces += ["▁h", "▁he", "▁hell"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    scores = [*[0.0] * 259, *(-float(i) for i in range(len(pieces)))]
    path = write_gguf(
        folder / "sp.gguf",
        LLAMA
        | {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
        | metadata,
    )
    return Tokenizer(gguf_tokenizer.load(path))
