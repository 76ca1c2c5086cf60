"""What the gateway measures, under the stems that vLLM dashboards know."""

from __future__ import annotations

import time

from octavo.errors import OctavoError
from octavo.obs.metrics import END_TO_END_S, LATENCY_S, TOKENS, Metrics

MODEL = ("model_name",)


class GatewayMetrics:
    """The gateway's metric objects; `request` gives one request's recorder."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        m = self.metrics = metrics or Metrics()
        self.ttft = m.histogram("time_to_first_token_seconds", "Time to the first token.", LATENCY_S, MODEL)
        self.itl = m.histogram("inter_token_latency_seconds", "Time between output tokens.", LATENCY_S, MODEL)
        self.e2e = m.histogram("e2e_request_latency_seconds", "Time of a whole request.", END_TO_END_S, MODEL)
        self.prompt = m.histogram("request_prompt_tokens", "Prompt tokens of a request.", TOKENS, MODEL)
        self.output = m.histogram("request_generation_tokens", "Output tokens of a request.", TOKENS, MODEL)
        self.success = m.counter("request_success", "Sequences that ended.", (*MODEL, "finished_reason"))
        self.errors = m.counter("request_errors", "Requests that ended with an error.", (*MODEL, "code"))
        self.prompt_tokens = m.counter("prompt_tokens", "Prompt tokens taken.", MODEL)
        self.generation_tokens = m.counter("generation_tokens", "Output tokens given to clients.", MODEL)
        self.running = m.gauge("num_requests_running", "Requests between acceptance and ending.", MODEL)
        self.resends = m.gauge("stream_resends", "Resends asked for after a gap in the token stream, since the start.")
        self.duplicates = m.gauge("stream_duplicates", "Emissions that had arrived before, since the start.")
        self.pauses = m.gauge("stream_pauses", "Streams paused because the client did not read, since the start.")

    def render(self, num_resends: int, num_duplicates: int, num_pauses: int) -> tuple[bytes, str]:
        """The exposition text and its content type; the arguments are the streams' own counts."""
        self.resends.set(num_resends)
        self.duplicates.set(num_duplicates)
        self.pauses.set(num_pauses)
        return self.metrics.render()

    def request(self, model: str, num_prompt_tokens: int) -> RequestMetrics:
        return RequestMetrics(self, model, num_prompt_tokens)


class RequestMetrics:
    """Records one request; started when created, ended by `close`."""

    def __init__(self, metrics: GatewayMetrics, model: str, num_prompt_tokens: int) -> None:
        self._m = metrics
        self._model = model
        self._start_s = self._last_s = time.perf_counter()
        self._num_tokens = 0
        metrics.prompt_tokens.labels(model).inc(num_prompt_tokens)
        metrics.prompt.labels(model).observe(num_prompt_tokens)
        metrics.running.labels(model).inc()

    def batch(self, num_tokens: int) -> None:
        """`num_tokens` arrived together; the gap before them counts once per token, evenly."""
        if not num_tokens:
            return
        now = time.perf_counter()
        if not self._num_tokens:
            self._m.ttft.labels(self._model).observe(now - self._start_s)
            num_gaps = num_tokens - 1
        else:
            num_gaps = num_tokens
        histogram = self._m.itl.labels(self._model)
        for _ in range(min(num_gaps, 64)):
            histogram.observe((now - self._last_s) / num_tokens)
        self._last_s = now
        self._num_tokens += num_tokens
        self._m.generation_tokens.labels(self._model).inc(num_tokens)

    def finish(self, reason: str) -> None:
        self._m.success.labels(self._model, reason).inc()

    def fail(self, error: OctavoError) -> None:
        self._m.errors.labels(self._model, error.code).inc()

    def close(self) -> None:
        self._m.running.labels(self._model).dec()
        self._m.e2e.labels(self._model).observe(time.perf_counter() - self._start_s)
        self._m.output.labels(self._model).observe(self._num_tokens)
