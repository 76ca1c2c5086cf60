"""Place requests on workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.cli.service import run_service
from octavo.config.command import RouterService


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    def start(config: RouterService, info_json: str) -> int:
        from octavo.router.main import run

        return run(config, info_json)

    return run_service(RouterService, "router", __doc__ or "", argv, env, start)
