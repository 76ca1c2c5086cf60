"""`Frontend`: from what a caller asks to a `Request`, the part that `LLM`, `AsyncLLM` and `LLMEngine` share."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.errors import InvalidInput, Problem, show
from octavo.llm.prompt import Prompt, read_prompt
from octavo.request import Request, SequenceInput
from octavo.request_check import check_prompt, check_types
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.hub.generation import GenerationDefaults
    from octavo.text.template import ChatTemplate
    from octavo.text.tokenizer import Tokenizer

SEED_BITS = 64


@dataclass(frozen=True)
class Prepared:
    """A checked request, and the prompt's text where there was one."""

    request: Request
    prompt: str | None


class Frontend:
    """Tokenizes, fills in and checks.  Holds no state of requests."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        defaults: GenerationDefaults,
        *,
        vocab_size: int,
        max_model_len: int,
        draw_seed: Callable[[], int] = lambda: secrets.randbits(SEED_BITS),
    ) -> None:
        self.tokenizer = tokenizer
        self.defaults = defaults
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self._draw_seed = draw_seed
        self._source: str | None = None
        self._compiled: ChatTemplate | None = None

    def default_params(self) -> SamplingParams:
        """The sampling parameters of a request that gives none: the model's generation config over the defaults."""
        return self.defaults.apply({})

    def prepare(
        self,
        request_id: str,
        prompt: Prompt | None,
        params: SamplingParams | None,
        *,
        priority: int = 0,
        field: str = "prompt",
    ) -> Prepared:
        """The request for one prompt; `params` None means the defaults, with as many tokens of them as there is room.

        Raises `InvalidInput` (or `TooLong`) when it can never run.
        """
        if not isinstance(request_id, str) or not request_id:
            raise InvalidInput.of([Problem("request_id", show(request_id), "must be a text that is not empty")])
        is_given = params is not None
        params = self.default_params() if params is None else check_types(params)
        parts = read_prompt(prompt, field)
        token_ids = parts.token_ids
        if token_ids is None:
            token_ids = self.tokenizer.encode(parts.text or "")
        params = self._fill_in(params, self.max_model_len - len(token_ids), is_given)
        check_prompt(token_ids, params, vocab_size=self.vocab_size, max_model_len=self.max_model_len, field=field)
        sequences = [SequenceInput(index) for index in range(params.n)]
        request = Request(request_id, 0, token_ids, params, sequences, priority=priority)
        return Prepared(request, parts.text)

    def render(self, messages: list[dict[str, Any]], *, chat_template: str | None = None, **options: Any) -> Prompt:
        """The prompt of a conversation by the model's chat template; `options` go to the template."""
        template = self._template(chat_template or self.tokenizer.chat_template)
        text = template.render(messages, **options)
        return {"prompt": text, "prompt_token_ids": self.tokenizer.encode(text, add_special_tokens=False)}

    def _template(self, source: str | None) -> ChatTemplate:
        from octavo.text.template import ChatTemplate

        if source != self._source or self._compiled is None:
            self._source, self._compiled = source, ChatTemplate(source, self.tokenizer)
        return self._compiled

    def _fill_in(self, params: SamplingParams, room: int, is_given: bool) -> SamplingParams:
        params = self.defaults.cap(params, room, is_given=is_given)
        return params if params.seed is not None else params.replace(seed=self._draw_seed())
