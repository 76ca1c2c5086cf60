"""The worker's metrics, with the stems that vLLM uses."""

from __future__ import annotations

from octavo.obs.metrics import Metrics
from octavo.wire.message import EngineStats

_COUNTERS = {
    "num_preemptions": ("num_preemptions", "Sequences preempted."),
    "num_prompt_tokens": ("prompt_tokens", "Prompt tokens computed or found in the prefix cache."),
    "num_generation_tokens": ("generation_tokens", "Tokens put out."),
    "num_steps": ("engine_steps", "Engine steps."),
    "prefix_cache_queries": ("prefix_cache_queries", "Tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("prefix_cache_hits", "Tokens found in the prefix cache."),
}
_STEP_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class WorkerMetrics:
    """Turns the engine's running totals into Prometheus counters and gauges."""

    def __init__(self, model: str, worker_id: str) -> None:
        self._metrics = Metrics()
        labels = ("model_name", "worker")
        values = (model, worker_id)
        gauge = self._metrics.gauge
        self.running = gauge("num_requests_running", "Sequences running.", labels).labels(*values)
        self.waiting = gauge("num_requests_waiting", "Sequences waiting.", labels).labels(*values)
        self.cache_usage = gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", labels).labels(*values)
        self.sessions = gauge("worker_sessions", "Gateway sessions.", labels).labels(*values)
        self.live = gauge("worker_live_requests", "Requests that have not ended.", labels).labels(*values)
        self.engine_age_s = gauge("engine_heartbeat_age_seconds", "Age of the engine's heartbeat.", labels).labels(
            *values
        )
        self._frames = [
            self._metrics.counter(stem, help, labels).labels(*values)
            for stem, help in (
                ("token_frames", "Token frames sent."),
                ("token_frames_unreachable", "Token frames whose gateway was not connected."),
                ("token_resends", "Resends answered."),
            )
        ]
        self.step_s = self._metrics.histogram("engine_step_seconds", "Duration of a step.", _STEP_S, labels).labels(
            *values
        )
        self._counters = {
            name: self._metrics.counter(stem, help, labels).labels(*values) for name, (stem, help) in _COUNTERS.items()
        }
        self._last = EngineStats()
        self._last_frames: tuple[int, ...] = (0, 0, 0)

    def take(self, stats: EngineStats) -> None:
        """The newest totals of the engine."""
        for name, counter in self._counters.items():
            counter.inc(max(0, getattr(stats, name) - getattr(self._last, name)))
        if stats.num_steps > self._last.num_steps:
            self.step_s.observe(stats.step_ms / 1000)
        self._last = stats
        self.running.set(stats.num_running)
        self.waiting.set(stats.num_waiting)
        self.cache_usage.set(1 - stats.num_free_blocks / stats.num_blocks if stats.num_blocks else 0.0)

    def set_frames(self, *totals: int) -> None:
        """Running totals of frames sent, frames unreachable, and resends."""
        for counter, now, last in zip(self._frames, totals, self._last_frames, strict=True):
            counter.inc(now - last)
        self._last_frames = totals

    def render(self) -> tuple[int, str, bytes]:
        body, kind = self._metrics.render()
        return 200, kind, body
