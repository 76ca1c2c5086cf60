"""`Registration`: keeps a worker's record and heartbeat with every router."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from octavo.errors import OctavoError
from octavo.kv.record import WorkerRecord
from octavo.registry.memory import HEARTBEAT_PERIOD_S
from octavo.rpc.router import RegistryClient

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 2.0


class Registration:
    """Verbs: `start`, `leave`.  A router that is away is tried again every period; the others are not disturbed.

    `on_tried()` is called once, when each router was tried: those that answer give this worker requests from then on.
    """

    def __init__(
        self,
        routers: Sequence[str],
        record: WorkerRecord,
        is_ready: Callable[[], bool],
        on_tried: Callable[[], None],
    ) -> None:
        self._clients = [RegistryClient(address) for address in routers]
        self._untried = {client.address for client in self._clients}
        self._record, self._is_ready, self._on_tried = record, is_ready, on_tried
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._keep(c), name=f"register-{c.address}") for c in self._clients]

    async def leave(self) -> None:
        """Leave the fleet; a router that does not answer finds out by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        calls = [c.deregister(self._record.worker_id, self._record.incarnation, CALL_TIMEOUT_S) for c in self._clients]
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.gather(*(c.close() for c in self._clients), return_exceptions=True)

    async def _keep(self, client: RegistryClient) -> None:
        is_known, was_reached = False, True
        record = self._record
        while True:
            try:
                if not is_known:
                    await client.register(record, CALL_TIMEOUT_S)
                    logger.info("registered with router %s", client.address)
                needs_record = await client.heartbeat(
                    record.worker_id, record.incarnation, self._is_ready(), CALL_TIMEOUT_S
                )
            except OctavoError as error:
                if was_reached:
                    logger.warning("router %s does not answer: %s", client.address, error.message)
                is_known, was_reached = False, False
            else:
                is_known, was_reached = not needs_record, True
                if needs_record:
                    continue
            self._note_tried(client.address)
            await asyncio.sleep(HEARTBEAT_PERIOD_S)

    def _note_tried(self, address: str) -> None:
        if address in self._untried:
            self._untried.remove(address)
            if not self._untried:
                self._on_tried()
