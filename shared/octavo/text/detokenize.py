"""Text of a token stream, as early as it is certain."""

from __future__ import annotations

import codecs

from octavo.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Turns ids into text one at a time, in constant time per token.

    For every way to cut the ids, the joined results of `push` and `finish` equal
    `tokenizer.decode(ids, skip_special_tokens, is_continuation=is_continuation)`.  Bytes of a character that is not
    complete are held back until it is, or until `finish` gives them out as U+FFFD.

    The output of a model continues its prompt, so its first token keeps a leading space: with a SentencePiece tokenizer
    the answer to "The capital of France is" streams as " Paris", which is what vLLM returns too.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, *, is_continuation: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._strips_space = tokenizer.strips_space and not is_continuation
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that this token makes certain; may be empty."""
        if token_id in self._skipped:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        if self._strips_space and data:
            data = data.removeprefix(b" ")
            self._strips_space = False
        return self._decoder.decode(data)

    def push_all(self, token_ids: list[int]) -> str:
        """As `push` of each, joined."""
        if self._strips_space:
            return "".join(map(self.push, token_ids))
        token_bytes, skipped = self._tokenizer.token_bytes, self._skipped
        return self._decoder.decode(b"".join([token_bytes(t) for t in token_ids if t not in skipped]))

    def finish(self) -> str:
        """What is held back: U+FFFD for the bytes of an unfinished character."""
        return self._decoder.decode(b"", final=True)
