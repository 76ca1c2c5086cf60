"""Progress bars: of `LLM.generate`, and of fetching a model."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from octavo.llm.output import RequestOutput


class Progress:
    """Counts finished requests and their tokens on a tqdm bar, or does nothing when not shown."""

    def __init__(self, num_requests: int, *, is_shown: bool) -> None:
        self._num_output_tokens = 0
        self._bar: Any = None
        if is_shown and num_requests:
            from tqdm import tqdm

            self._bar = tqdm(total=num_requests, desc="Processed prompts", unit="request", file=sys.stderr)

    def add(self, output: RequestOutput) -> None:
        """Count one finished request."""
        if self._bar is None:
            return
        self._num_output_tokens += sum(len(o.token_ids) for o in output.outputs)
        elapsed_s = max(self._bar.format_dict["elapsed"], 1e-9)
        self._bar.set_postfix_str(f"{self._num_output_tokens / elapsed_s:.1f} output tokens/s", refresh=False)
        self._bar.update(1)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class FetchProgress:
    """Shows what is being fetched on a terminal; a bar appears once something is, and none elsewhere."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, what: str, fraction: float) -> None:
        """The fraction of `what` that is done, from 0 to 1."""
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=100, unit="%", file=sys.stderr, disable=None)
        self._bar.set_description(what, refresh=False)
        self._bar.update(round(fraction * 100) - self._bar.n)

    def __enter__(self) -> FetchProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
