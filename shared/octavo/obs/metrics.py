"""Prometheus metrics of one process: an own registry, and the metric stems that dashboards for vLLM know.

Names are `octavo:` + the stem, so that a dashboard ports by changing the prefix.  Each service builds one `Metrics`;
nothing is registered globally, so several services can live in one test process.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

PREFIX = "octavo:"

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
END_TO_END_S = (0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


class Metrics:
    """Factory and registry of one process's metrics.  `stem` is the name without prefix (and without `_total`)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, stem: str, help: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(PREFIX + stem, help, labels, registry=self.registry)

    def gauge(self, stem: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(PREFIX + stem, help, labels, registry=self.registry)

    def histogram(self, stem: str, help: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
        return Histogram(PREFIX + stem, help, labels, registry=self.registry, buckets=tuple(buckets))

    def render(self) -> tuple[bytes, str]:
        """The exposition text and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
