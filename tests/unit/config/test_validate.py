"""Cross-field checks, each with the reason it gives."""

from __future__ import annotations

import pytest

from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.resolve import resolve

CASES = [
    (ClusterService, [], "model: got ''; name a model"),
    (GatewayService, ["m"], "router: got none; give the address"),
    (WorkerService, ["m", "--router", "nohost"], "router: got 'nohost'; must be host:port"),
    (WorkerService, ["m", "--router", "h:0"], "router: got 'h:0'; must be host:port"),
    (ClusterService, ["m", "--trust-remote-code"], "trust_remote_code: got True; must be off"),
    (ClusterService, ["m", "--rope-scaling", "{"], "rope_scaling: got '{'; must be a JSON object"),
    (ClusterService, ["m", "--rope-scaling", '{"factor":2}'], "rope_scaling"),
    (ClusterService, ["m", "-dp", "2"], "data_parallel_size: got 2; must be 1: one worker runs one engine"),
    (ClusterService, ["m", "-pp", "2"], "pipeline_parallel_size: got 2; must be 1: a model cannot be cut"),
    (ClusterService, ["m", "--port", "8000", "--grpc-port", "8000"], "grpc_port: got 8000; must differ"),
    (ClusterService, ["m", "--port", "65535"], "grpc_port: got -1; must be given"),
    (ClusterService, ["m", "--ready-limit-s", "70"], "live_limit_s: got 60.0; must be at least ready_limit_s (70)"),
    (RouterService, ["--router-port", "9", "--router-metrics-port", "9"], "router_metrics_port: got 9; must differ"),
    (
        ClusterService,
        ["m", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "64", "--max-model-len", "128"],
        "max_num_batched_tokens: got 64; must be at least max_model_len (128)",
    ),
    (
        ClusterService,
        ["m", "--workers", "4", "--worker-port", "65533"],
        "worker_port: got 65533; must be at most 65532",
    ),
    (
        ClusterService,
        ["m", "--workers", "4", "--worker-port", "5000", "--worker-metrics-port", "5002"],
        "worker_metrics_port: got 5002; must be at least 4 away",
    ),
    (ClusterService, ["m", "--max-num-seqs", "0"], "max_num_seqs: got 0; must be at least 1"),
]


@pytest.mark.parametrize(("command", "argv", "message"), CASES)
def test_refused_with_the_reason(command: type, argv: list[str], message: str) -> None:
    problems = resolve(command, argv).problems
    assert len(problems) == 1
    assert str(problems[0]).startswith(message)


@pytest.mark.parametrize(
    "argv",
    [
        ["m", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "128", "--max-model-len", "128"],
        ["m", "--max-num-batched-tokens", "16"],
        ["m", "--port", "0", "--grpc-port", "0"],
        ["m", "--workers", "4", "--worker-port", "5000", "--worker-metrics-port", "5004"],
    ],
)
def test_accepted(argv: list[str]) -> None:
    assert resolve(ClusterService, argv).problems == []
