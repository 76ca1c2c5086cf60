"""Eyes: structured logs, Prometheus metrics, progress and readiness notices."""
