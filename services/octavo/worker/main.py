"""The worker process: the front of an engine."""

from __future__ import annotations

import logging

from octavo.config.command import WorkerService
from octavo.errors import OctavoError
from octavo.lifecycle import StopSignal, run_service
from octavo.obs.notify import Notifier
from octavo.worker.front import Front

logger = logging.getLogger(__name__)


def run(config: WorkerService, info_json: str) -> int:
    """Blocking; SIGTERM and SIGINT drain and return 0, the end of the engine returns 1.

    `info_json` is the resolved configuration, served by GetInfo.
    """
    notifier = Notifier.from_env()

    async def main(stop: StopSignal) -> int:
        return await Front(config, info_json, notifier).serve(stop)

    try:
        return run_service(main)
    except OctavoError as error:
        logger.error("worker: %s", error.message)
        notifier.failed(error.message)
        return 1
