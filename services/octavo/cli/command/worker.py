"""Run the engine for one model, as a front and an engine process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.cli.service import run_service
from octavo.config.command import WorkerService
from octavo.engine.requirement import check_engine_is_installed


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    def start(config: WorkerService, info_json: str) -> int:
        check_engine_is_installed()
        from octavo.worker.main import run

        return run(config, info_json)

    return run_service(WorkerService, "worker", __doc__ or "", argv, env, start)
