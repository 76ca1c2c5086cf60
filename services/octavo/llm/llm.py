"""`LLM`: answers to batches of prompts, in this process."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from octavo.errors import Busy
from octavo.llm.args import EngineArgs
from octavo.llm.frontend import Prepared
from octavo.llm.interrupt import uninterrupted
from octavo.llm.llm_engine import LLMEngine
from octavo.llm.output import RequestOutput
from octavo.llm.progress import FetchProgress, Progress
from octavo.llm.prompt import Prompt, list_conversations, list_params, list_prompts
from octavo.sampling_params import SamplingParams

Params = SamplingParams | Sequence[SamplingParams] | None


ADMIT_AT_ONCE = 64


class LLM:
    """A model in this process: `LLM("smollm2-135m", max_num_seqs=8)`; any engine flag is a keyword.

    Use it as a context manager, or `close()` it.  Threads that share one take turns; `AsyncLLM` runs their requests
    together.  Ctrl-C ends a call and its requests, and the next call works.
    """

    def __init__(self, model: str | os.PathLike[str] | LLMEngine, **flags: Any) -> None:
        if isinstance(model, LLMEngine):
            self._engine = model
        else:
            with FetchProgress() as progress:
                self._engine = LLMEngine.from_engine_args(EngineArgs(model, **flags), progress.show)
        self._ids = itertools.count()
        self._turn = threading.RLock()

    @property
    def llm_engine(self) -> LLMEngine:
        return self._engine

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, use_tqdm: bool = True
    ) -> list[RequestOutput]:
        """One output per prompt, in their order.

        `prompts` is one prompt or a list: a text, token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}`.
        `sampling_params` is one for all, a list with one each, or None for `get_default_sampling_params()`.
        Raises `InvalidInput` before anything runs if any of them can never run.  A request that fails while it runs
        has the finish reason `error` and its `error` set; the others are not touched.
        """
        all_prompts = list_prompts(prompts)
        all_params = list_params(sampling_params, len(all_prompts))
        prefix = f"llm-{next(self._ids)}"
        prepared = [
            self._engine.frontend.prepare(f"{prefix}-{i}", prompt, params, field=_field(i, len(all_prompts)))
            for i, (prompt, params) in enumerate(zip(all_prompts, all_params, strict=True))
        ]
        with self._turn:
            return self._run(prepared, use_tqdm)

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: Params = None,
        use_tqdm: bool = True,
        *,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """As `generate`, for one conversation (a list of messages with `role` and `content`) or a list of them."""
        conversations = list_conversations(messages)
        with self._turn:
            prompts = [
                self._engine.frontend.render(
                    conversation,
                    chat_template=chat_template,
                    add_generation_prompt=add_generation_prompt and not continue_final_message,
                    continue_final_message=continue_final_message,
                    **(chat_template_kwargs or {}),
                )
                for conversation in conversations
            ]
            return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def get_default_sampling_params(self) -> SamplingParams:
        """The model's own sampling settings (its generation config) over the defaults."""
        return self._engine.frontend.default_params()

    def get_tokenizer(self) -> Any:
        """The model's tokenizer (`octavo.text.tokenizer.Tokenizer`)."""
        return self._engine.get_tokenizer()

    def close(self) -> None:
        """Release the engine and its memory, after the call that runs.  May be called again."""
        with self._turn:
            self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, prepared: list[Prepared], use_tqdm: bool) -> list[RequestOutput]:
        waiting = deque(prepared)
        done: dict[str, RequestOutput] = {}
        try:
            with Progress(len(prepared), is_shown=use_tqdm) as progress:
                while len(done) < len(prepared):
                    self._admit(waiting)
                    for reply in self._engine.step_replies():
                        if reply.is_finished:
                            done[reply.request_id] = reply.output()
                            progress.add(done[reply.request_id])
        finally:
            with uninterrupted():
                for p in prepared:
                    if p.request.request_id not in done:
                        self._engine.abort_request(p.request.request_id)
        return [done[p.request.request_id] for p in prepared]

    def _admit(self, waiting: deque[Prepared]) -> None:
        """Hand over requests, as many as the queue takes, but not so many at once that the device waits for them."""
        for _ in range(min(len(waiting), ADMIT_AT_ONCE)):
            try:
                self._engine.add_prepared(waiting[0])
            except Busy:
                if not self._engine.has_unfinished_requests():
                    raise
                return
            waiting.popleft()


def _field(index: int, num_prompts: int) -> str:
    return "prompt" if num_prompts == 1 else f"prompts[{index}]"
