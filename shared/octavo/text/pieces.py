"""What bytes each token id stands for: one table per decoder kind.

Decoding is bytes first, text last: the bytes of all tokens are joined and read as UTF-8, each broken sequence becoming
U+FFFD.  A broken character therefore never spoils its neighbours, and text can be streamed without looking back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import tokenizers

from octavo.errors import InvalidInput

SPACE_MARK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_alphabet() -> dict[str, int]:
    """The GPT-2 alphabet: character → byte.  Printable Latin-1 stands for itself, the rest moves above U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


_BYTE_OF = byte_level_alphabet()


def _byte_level(piece: str) -> bytes:
    try:
        return bytes([_BYTE_OF[c] for c in piece])
    except KeyError:
        return piece.encode("utf-8", "replace")


def _sentence_piece(piece: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(piece)
    if match:
        return bytes([int(match[1], 16)])
    return _marked(piece)


def _marked(piece: str) -> bytes:
    return piece.replace(SPACE_MARK, " ").encode("utf-8", "replace")


def _word_piece(piece: str) -> bytes:
    return (piece[2:] if piece.startswith("##") else " " + piece).encode("utf-8", "replace")


def _plain(piece: str) -> bytes:
    return piece.encode("utf-8", "replace")


class PieceTable:
    """Bytes by token id, filled as ids are seen.

    `strips_space` tells that the first token's leading space belongs to the tokenizer, not to the text: decoding from
    the start of a text drops it.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._to_bytes, self.strips_space = _decoder_kind(backend)
        self._added = {i: t.content for i, t in backend.get_added_tokens_decoder().items()}
        self._bytes: dict[int, bytes] = {}

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; empty for an id without a piece (the padding of an embedding table)."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._read(token_id)
        return found

    def _read(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode("utf-8", "replace")
        piece = self._backend.id_to_token(token_id) if token_id >= 0 else None
        return b"" if piece is None else self._to_bytes(piece)


def _decoder_kind(backend: tokenizers.Tokenizer) -> tuple[Callable[[str], bytes], bool]:
    """How pieces become bytes, and whether the first leading space is stripped."""
    spec: dict[str, Any] | None = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else None
    if spec is None:
        return _plain, False
    parts = spec["decoders"] if spec["type"] == "Sequence" else [spec]
    kinds = {part["type"] for part in parts}
    if kinds <= {"ByteLevel", "Fuse"}:
        return _byte_level, False
    if kinds <= {"Replace", "ByteFallback", "Fuse", "Strip"} and all(_is_space_rule(part) for part in parts):
        return (_sentence_piece if "ByteFallback" in kinds else _marked), "Strip" in kinds
    if kinds <= {"Metaspace", "ByteFallback", "Fuse"}:
        strips = any(part.get("prepend_scheme", "always") != "never" for part in parts if part["type"] == "Metaspace")
        return (_sentence_piece if "ByteFallback" in kinds else _marked), strips
    if kinds == {"WordPiece"}:
        return _word_piece, True
    raise InvalidInput(f"tokenizer: its decoder ({', '.join(sorted(kinds))}) is not supported", param="tokenizer")


def _is_space_rule(part: dict[str, Any]) -> bool:
    """Whether a Replace turns the space mark into a space, and a Strip takes at most one leading space."""
    if part["type"] == "Replace":
        return part["pattern"] == {"String": SPACE_MARK} and part["content"] == " "
    if part["type"] == "Strip":
        return part["content"] == " " and part["start"] <= 1 and part["stop"] == 0
    return True
