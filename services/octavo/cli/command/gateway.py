"""Serve the OpenAI API and the public gRPC API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.cli.service import run_service
from octavo.config.command import GatewayService


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    def start(config: GatewayService, info_json: str) -> int:
        from octavo.gateway.main import run

        return run(config, info_json)

    return run_service(GatewayService, "gateway", __doc__ or "", argv, env, start)
