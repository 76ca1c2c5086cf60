"""Tokenizers from GGUF metadata: byte-level BPE (`gpt2`) and SentencePiece BPE by scores (`llama`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from octavo.errors import InvalidInput
from octavo.hub.gguf import GGUFFile
from octavo.text.parts import TokenizerParts
from octavo.text.pieces import SPACE_MARK

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of `tokenizer.ggml.token_type`."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
QWEN2 = rf"{_WORDS}|\p{{N}}|{_REST}"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PATTERNS = {
    "gpt-2": GPT2,
    "gpt2": GPT2,
    "smollm": GPT2,
    "starcoder": GPT2,
    "refact": GPT2,
    "command-r": GPT2,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": TEKKEN,
}
"""`tokenizer.ggml.pre` → the pattern that cuts text into words."""

SPLITS_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r"})
"""Pre-tokenizers that make every digit a word of its own before the pattern applies."""

IGNORES_MERGES = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})
"""Tokenizers that take a word that is in the vocabulary whole, whatever the merges say."""

ADDS_BOS = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})
NORMALIZES = frozenset({"qwen2", "deepseek-r1-qwen"})


def check(path: Path) -> None:
    """Raise `InvalidInput` when `load` would refuse the file for what its metadata says; builds nothing."""
    _check(GGUFFile.open(path).metadata, path)


def _check(metadata: dict[str, Any], path: Path) -> None:
    kind, pre = metadata.get("tokenizer.ggml.model"), _pre_tokenizer(metadata)
    if not metadata.get("tokenizer.ggml.tokens"):
        raise InvalidInput(f"tokenizer: {path.name} holds no vocabulary; give --tokenizer", param="tokenizer")
    if kind not in ("gpt2", "llama"):
        raise InvalidInput(
            f"tokenizer: {path.name}: kind {kind!r} is not supported (gpt2 and llama are); give --tokenizer",
            param="tokenizer",
        )
    if kind == "gpt2" and pre not in PATTERNS:
        known = ", ".join(PATTERNS)
        raise InvalidInput(
            f"tokenizer: {path.name}: pre-tokenizer {pre!r} is not supported ({known} are); give --tokenizer",
            param="tokenizer",
        )


def load(path: Path) -> TokenizerParts:
    """The tokenizer in the metadata of a GGUF file; raises `InvalidInput` when it is of an unsupported kind."""
    metadata = GGUFFile.open(path).metadata
    _check(metadata, path)
    kind, tokens = metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.tokens"]
    types = metadata.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if kind == "gpt2":
        backend, adds_bos = _byte_level(metadata, tokens)
    else:
        backend, adds_bos = _sentence_piece(metadata, tokens, types), True
    added = [(t, k == CONTROL) for t, k in zip(tokens, types, strict=False) if k in (CONTROL, USER_DEFINED)]
    backend.add_tokens([AddedToken(t, special=special, normalized=False) for t, special in added if t])
    return _parts(backend, metadata, tokens, adds_bos)


def _parts(backend: Tokenizer, metadata: dict[str, Any], tokens: list[str], adds_bos: bool) -> TokenizerParts:
    def token_id(name: str) -> int | None:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        return value if isinstance(value, int) and 0 <= value < len(tokens) else None

    bos, eos = token_id("bos"), token_id("eos")
    prefix = [bos] if metadata.get("tokenizer.ggml.add_bos_token", adds_bos) and bos is not None else []
    suffix = [eos] if metadata.get("tokenizer.ggml.add_eos_token", False) and eos is not None else []
    names = {"bos_token": bos, "eos_token": eos, "unk_token": token_id("unknown"), "pad_token": token_id("padding")}
    return TokenizerParts(
        backend=backend,
        bos_token_id=bos,
        eos_token_id=eos,
        affixes=(prefix, suffix),
        chat_template=metadata.get("tokenizer.chat_template"),
        special_tokens={name: tokens[i] for name, i in names.items() if i is not None},
    )


def _ids(tokens: list[str]) -> dict[str, int]:
    """Token → id; of equal tokens the first keeps the name."""
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        ids.setdefault(token, i)
    return ids


def _pre_tokenizer(metadata: dict[str, Any]) -> str:
    pre = str(metadata.get("tokenizer.ggml.pre", "gpt-2"))
    return "gpt-2" if pre == "default" else pre


def _byte_level(metadata: dict[str, Any], tokens: list[str]) -> tuple[Tokenizer, bool]:
    pre = _pre_tokenizer(metadata)
    merges = [tuple(merge.split(" ", 1)) for merge in metadata.get("tokenizer.ggml.merges", [])]
    backend = Tokenizer(BPE(vocab=_ids(tokens), merges=merges, ignore_merges=pre in IGNORES_MERGES))
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if pre in SPLITS_DIGITS else []
    steps.append(pre_tokenizers.Split(Regex(PATTERNS[pre]), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if pre in NORMALIZES:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend, pre in ADDS_BOS


def _sentence_piece(metadata: dict[str, Any], tokens: list[str], types: list[int]) -> Tokenizer:
    ids = _ids(tokens)
    scores = metadata.get("tokenizer.ggml.scores") or [0.0] * len(tokens)
    unknown = next((t for t, k in zip(tokens, types, strict=False) if k == UNKNOWN), None)
    backend = Tokenizer(
        BPE(
            vocab=ids,
            merges=merges_of_scores(tokens, scores, types),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=BYTE in types,
        )
    )
    steps: list[Any] = [normalizers.Replace(" ", SPACE_MARK)]
    strip: list[Any] = []
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE_MARK))
        strip = [decoders.Strip(" ", 1, 0)]
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def merges_of_scores(tokens: list[str], scores: list[float], types: list[int]) -> list[tuple[str, str]]:
    """BPE merges equal to joining, at each step, the neighbours whose joined piece has the highest score."""
    ids = _ids([t if k == NORMAL else "" for t, k in zip(tokens, types, strict=False)])
    ids.pop("", None)
    found = []
    for piece, i in ids.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in ids and right in ids:
                found.append((-scores[i], ids[left], ids[right], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]
