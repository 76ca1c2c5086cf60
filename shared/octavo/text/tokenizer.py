"""`Tokenizer`: text to token ids and back, from a Hugging Face folder or a GGUF file, without transformers."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.errors import InvalidInput, show
from octavo.hub.files import ModelFiles
from octavo.obs.log import get_logger
from octavo.text import gguf_tokenizer, json_tokenizer
from octavo.text.parts import TokenizerParts
from octavo.text.pieces import PieceTable

log = get_logger(__name__)


class Tokenizer:
    """Encodes and decodes; immutable and safe to share between threads.

    `special_ids` are the control tokens that `skip_special_tokens` leaves out of text.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        self._backend = parts.backend
        self._affixes = parts.affixes
        self._pieces = PieceTable(parts.backend)
        self.bos_token_id = parts.bos_token_id
        self.eos_token_id = parts.eos_token_id
        self.chat_template = parts.chat_template
        self.special_tokens = dict(parts.special_tokens or {})
        self.special_ids = frozenset(i for i, t in parts.backend.get_added_tokens_decoder().items() if t.special)
        self.vocab_size = parts.backend.get_vocab_size(with_added_tokens=True)

    @property
    def strips_space(self) -> bool:
        """Whether a text's first token carries a space that is not part of the text (SentencePiece)."""
        return self._pieces.strips_space

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of `text`.  Special tokens written in the text become their ids.

        Raises `InvalidInput` for text that is not valid Unicode (lone surrogates).
        """
        uses_backend = add_special_tokens and self._affixes is None
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=uses_backend).ids
        except (UnicodeEncodeError, TypeError):
            raise InvalidInput(f"prompt: got {show(text)}; must be valid Unicode text", param="prompt") from None
        if add_special_tokens and self._affixes is not None:
            return [*self._affixes[0], *ids, *self._affixes[1]]
        return ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True, *, is_continuation: bool = False) -> str:
        """The text of `ids`; broken UTF-8 becomes U+FFFD.

        `is_continuation` reads the ids as what follows other text, so that a leading space stays; a text that stands
        alone loses the one that SentencePiece tokenizers put before it.
        """
        skipped = self.special_ids if skip_special_tokens else frozenset()
        data = b"".join(self._pieces.token_bytes(i) for i in ids if i not in skipped)
        if self.strips_space and not is_continuation:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token adds to a text; empty for an id outside the vocabulary."""
        return self._pieces.token_bytes(token_id)

    def piece(self, token_id: int) -> str:
        """One token as text, for logprobs: U+FFFD stands for the parts of a character that spans tokens."""
        return self._pieces.token_bytes(token_id).decode("utf-8", "replace")

    def token_id(self, token: str) -> int | None:
        """The id of a token by its name in the vocabulary, such as `<|im_end|>`."""
        found: int | None = self._backend.token_to_id(token)
        return found


def load_tokenizer(files: ModelFiles) -> Tokenizer:
    """The tokenizer of a resolved model; raises `InvalidInput` when it has none or it cannot be read."""
    source = files.tokenizer_source
    if source is None:
        raise InvalidInput(f"tokenizer: {files.name} comes without one; give --tokenizer", param="tokenizer")
    is_gguf = source.is_file() and source.suffix == ".gguf"
    tokenizer = Tokenizer(gguf_tokenizer.load(source) if is_gguf else json_tokenizer.load(source))
    model_size = files.config.get("vocab_size")
    if isinstance(model_size, int) and tokenizer.vocab_size > model_size:
        log.warning(
            "the tokenizer has more ids than the model: a text that needs one of the others is refused",
            num_tokenizer_ids=tokenizer.vocab_size,
            num_model_ids=model_size,
        )
    return tokenizer
