"""A byte-level BPE tokenizer of 512 tokens, written by rule: no training, no corpus, no network.

Ids 0 to 255 are the bytes in order, then 253 merges of pairs that are common in English, then `<|endoftext|>`,
`<|im_start|>` and `<|im_end|>`.  Every text round-trips, because every byte has a token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCAB_SIZE = 512
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS_ID, IM_START_ID, EOS_ID = VOCAB_SIZE - 3, VOCAB_SIZE - 2, VOCAB_SIZE - 1

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_SPACE = "Ġ"
_WORDS = ("the", "to", "of", "in", "is", "it", "he", "on", "or", "we", "be", "no", "so", "do", "go", "me", "my")


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary (GPT-2's map)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    stand_in = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(stand_in)) for b in range(256)]


def merges() -> list[tuple[str, str]]:
    """The 253 merges, in order of rank; every part is a byte or made by an earlier merge."""
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    vowels = "eaoiu"
    pairs = [(c, v) for v in vowels for c in letters if c not in vowels]
    pairs += [(v, c) for v in vowels for c in letters if c not in vowels]
    pairs += [(_SPACE, c) for c in letters]
    made = {a + b for a, b in pairs}
    pairs += [(_SPACE + w[0], w[1:]) for w in _WORDS if len(w) == 2 or w[1:] in made]
    return pairs[: VOCAB_SIZE - 256 - len(SPECIALS)]


def vocabulary() -> dict[str, int]:
    """Token text → id, special tokens included."""
    tokens = [*byte_characters(), *(a + b for a, b in merges()), *SPECIALS]
    return {token: index for index, token in enumerate(tokens)}


def _added(token: str, index: int) -> dict[str, Any]:
    return {
        "id": index,
        "content": token,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def tokenizer_json() -> dict[str, Any]:
    """The content of tokenizer.json."""
    vocab = vocabulary()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(token, vocab[token]) for token in SPECIALS],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for token, index in vocab.items() if token not in SPECIALS},
            "merges": [list(pair) for pair in merges()],
        },
    }


def write_tiny_tokenizer(folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json (with a ChatML template) into `folder`."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(), ensure_ascii=False), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIALS[0],
        "eos_token": SPECIALS[2],
        "pad_token": SPECIALS[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
