"""Metrics of an engine worker, taken from the `EngineStats` that every step brings."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from octavo.obs.metrics import Metrics
from octavo.wire.message import EngineStats


class EngineMetrics:
    """Gauges and counters of one engine incarnation.  `observe` takes absolute counts and adds the differences."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        labels = ("model_name",)

        def gauge(stem: str, help: str) -> Gauge:
            return metrics.gauge(stem, help, labels).labels(model)

        def counter(stem: str, help: str) -> Counter:
            return metrics.counter(stem, help, labels).labels(model)

        self._running = gauge("num_requests_running", "Requests in the running batch.")
        self._waiting = gauge("num_requests_waiting", "Requests that wait for admission.")
        self._usage = gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.")
        self._counters: dict[str, Counter] = {
            "num_preemptions": counter("num_preemptions", "Preemptions."),
            "num_prompt_tokens": counter("prompt_tokens", "Prompt tokens computed."),
            "num_generation_tokens": counter("generation_tokens", "Tokens generated."),
            "prefix_cache_queries": counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
            "prefix_cache_hits": counter("prefix_cache_hits", "Prompt tokens found in the prefix cache."),
            "num_steps": counter("engine_steps", "Engine steps."),
        }
        self._seen = dict.fromkeys(self._counters, 0)

    def observe(self, stats: EngineStats) -> None:
        """Take over one step's statistics; a count below the last one (a new incarnation) starts again from 0."""
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        self._usage.set(1 - stats.num_free_blocks / stats.num_blocks if stats.num_blocks else 0)
        for name, counter in self._counters.items():
            value = getattr(stats, name)
            last = self._seen[name] if value >= self._seen[name] else 0
            counter.inc(value - last)
            self._seen[name] = value
