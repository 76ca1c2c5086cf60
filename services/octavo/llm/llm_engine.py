"""`LLMEngine`: an engine in this process that the caller steps."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import msgspec

from octavo.engine.requirement import check_engine_is_installed
from octavo.engine.threads import limit_spinning
from octavo.errors import InternalError, InvalidInput, OctavoError, Unavailable
from octavo.llm.args import EngineArgs
from octavo.llm.frontend import Frontend, Prepared
from octavo.llm.interrupt import uninterrupted
from octavo.llm.output import RequestOutput
from octavo.llm.prompt import Prompt
from octavo.llm.reply import Reply
from octavo.request import Emission, Request
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.engine.core import EngineCore
    from octavo.hub.files import Progress
    from octavo.kv.record import WorkerRecord
    from octavo.wire.message import EngineStats


class LLMEngine:
    """Owns an `EngineCore` and the replies of its live requests.  Not thread-safe: one thread calls everything.

    Ctrl-C takes effect between two changes, so that the engine can go on after it.  Whatever else breaks a step off
    ends the engine: every later call says why.
    """

    def __init__(self, core: EngineCore, frontend: Frontend, record: WorkerRecord | None = None) -> None:
        self.core = core
        self.frontend = frontend
        self.record = record
        self._replies: dict[str, Reply] = {}
        self._attempts = itertools.count(1)
        self._refusal: OctavoError | None = None
        """Why nothing can be asked of this engine any more."""

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, progress: Progress | None = None) -> LLMEngine:
        """Resolve the model, load it and build the engine.  Raises typed errors that name the setting at fault.

        `progress` hears what is being fetched, and the fraction done.
        """
        check_engine_is_installed()
        limit_spinning()
        from octavo.engine.build import build_engine
        from octavo.hub.generation import GenerationDefaults
        from octavo.hub.resolve import resolve_model
        from octavo.text.tokenizer import load_tokenizer

        config = engine_args.config
        model = config.model
        files = resolve_model(
            model.model,
            tokenizer=model.tokenizer,
            revision=model.revision,
            generation_config=model.generation_config,
            load_format=model.load_format,
            progress=progress,
        )
        tokenizer = load_tokenizer(files)
        defaults = GenerationDefaults.from_files(files)
        core, record = build_engine(config, files)
        frontend = Frontend(tokenizer, defaults, vocab_size=record.vocab_size, max_model_len=record.max_sequence_tokens)
        return cls(core, frontend, record)

    def add_request(
        self,
        request: str | Request,
        prompt: Prompt | None = None,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
    ) -> None:
        """Queue a request: an id, a prompt and sampling parameters; or a `Request` made elsewhere.

        `priority` counts under the scheduling policy `priority`: lower values run first.
        Raises `InvalidInput` for one that can never run or an id that is live, `Busy` when the queue is full.
        """
        if isinstance(request, Request):
            self.add_prepared(Prepared(request, None))
            return
        self.add_prepared(self.frontend.prepare(request, prompt, params, priority=priority))

    def add_prepared(self, prepared: Prepared) -> None:
        """Queue a request that `frontend.prepare` made."""
        self._check_usable()
        request_id = prepared.request.request_id
        if request_id in self._replies:
            raise InvalidInput(f"request_id: got {request_id!r}; it is in use by a live request", param="request_id")
        # The core knows a request by (id, attempt) for a while after its end: a new number lets ids be used again.
        request = msgspec.structs.replace(prepared.request, attempt=next(self._attempts))
        reply = Reply(Prepared(request, prepared.prompt), self.frontend.tokenizer)
        with uninterrupted():
            self.core.add_request(request)
            self._replies[request_id] = reply

    def abort_request(self, request_id: str, sequences: list[int] | None = None) -> RequestOutput | None:
        """End a request, or some of its sequences; its last output, or None for an id that is not live."""
        reply = self._replies.get(request_id)
        if reply is None:
            return None
        with uninterrupted():
            self.core.abort_request(request_id, sequences)
            reply.abort(sequences)
            if reply.is_finished:
                del self._replies[request_id]
        return reply.output()

    def step(self) -> list[RequestOutput]:
        """Run one step; the cumulative output of every request that it added to, a finished one for the last time."""
        return [reply.output() for reply in self.step_replies()]

    def step_replies(self) -> list[Reply]:
        """As `step`, but the replies themselves, so that a caller copies only what it needs."""
        self._check_usable()
        with uninterrupted():
            try:
                return self._step()
            except BaseException as error:
                fault = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                self._refusal = InternalError(f"a step of the engine broke off ({fault}); build a new one")
                raise

    def _step(self) -> list[Reply]:
        touched: dict[str, Reply] = {}
        for emission in self.core.step(time.time()):
            reply = self._replies.get(emission.request_id)
            if reply is None or reply.attempt != emission.attempt:
                continue
            self._push(reply, emission)
            touched[emission.request_id] = reply
        for request_id, reply in touched.items():
            if reply.is_finished:
                del self._replies[request_id]
        return list(touched.values())

    def _push(self, reply: Reply, emission: Emission) -> None:
        """Turn one emission into text.  What goes wrong there ends this request alone."""
        try:
            if reply.push(emission):
                self.core.abort_request(reply.request_id, [emission.sequence])
        except Exception as error:
            reply.fail(InternalError(f"text of the answer: {type(error).__name__}: {error}").detail())
            self.core.abort_request(reply.request_id)

    def has_unfinished_requests(self) -> bool:
        return bool(self._replies) or self.core.has_unfinished_requests()

    def live_request_ids(self) -> list[str]:
        return list(self._replies)

    def stats(self) -> EngineStats:
        """Gauges and counters of the engine."""
        return self.core.stats()

    def get_tokenizer(self) -> Any:
        return self.frontend.tokenizer

    def close(self) -> None:
        """Abort what is live and release the device.  May be called again."""
        for request_id in self.live_request_ids():
            self.abort_request(request_id)
        self._refusal = Unavailable("the engine is closed")
        self.core.close()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal
