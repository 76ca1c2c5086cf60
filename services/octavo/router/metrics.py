"""The router's metrics, `router_*`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

PLACE_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)


class RouterMetrics:
    """One registry per router."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.placements = Counter(
            "router_placements_total", "Placements by policy and worker.", ("policy", "worker"), registry=self.registry
        )
        self.refusals = Counter(
            "router_refusals_total", "Place calls that ended in an error, by code.", ("code",), registry=self.registry
        )
        self.place_s = Histogram("router_place_seconds", "Time to choose.", buckets=PLACE_S, registry=self.registry)
        self.workers = Gauge("router_workers", "Registered workers.", registry=self.registry)
        self.ready_workers = Gauge("router_ready_workers", "Workers that take requests.", registry=self.registry)
        self.in_flight = Gauge(
            "router_in_flight_requests", "Requests in flight by worker.", ("worker",), registry=self.registry
        )
        self.lost = Counter(
            "router_workers_lost_total", "Workers removed after heartbeat and probe failed.", registry=self.registry
        )

    def render(self) -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE_LATEST, generate_latest(self.registry)
