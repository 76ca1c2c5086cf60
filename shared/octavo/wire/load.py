"""Load reports: each worker publishes, every router subscribes to every worker."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import zmq

from octavo.wire.message import FROM_WORKER, LoadReport, UnknownVersion
from octavo.wire.reader import SocketReader

logger = logging.getLogger(__name__)


class LoadPublisher:
    """The worker's PUB socket.  Reports are snapshots: a slow router loses old ones, never the newest for long."""

    def __init__(self, host: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.setsockopt(zmq.SNDHWM, 8)
        self._socket.setsockopt(zmq.LINGER, 0)
        port = self._socket.bind_to_random_port(f"tcp://{host}")
        self.address = f"tcp://{host}:{port}"

    def publish(self, report: LoadReport) -> None:
        self._socket.send(FROM_WORKER.encode(report), zmq.NOBLOCK)

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class LoadSubscriber:
    """A router's SUB socket over all workers; hands reports to `on_report` on the running loop."""

    def __init__(self, on_report: Callable[[LoadReport], None]) -> None:
        self._on_report = on_report
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._socket.setsockopt(zmq.LINGER, 0)
        self._reader = SocketReader(self._socket, self._take)
        self._addresses: set[str] = set()

    def follow(self, addresses: set[str]) -> None:
        """Listen to exactly these workers from now on."""
        for address in addresses - self._addresses:
            self._socket.connect(address)
        for address in self._addresses - addresses:
            self._socket.disconnect(address)
        self._addresses = set(addresses)
        self._reader.drain()

    def _take(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                report = FROM_WORKER.decode(frame)
            except (UnknownVersion, msgspec.DecodeError) as error:
                logger.warning("dropped a malformed load report: %s", error)
                continue
            if isinstance(report, LoadReport):
                self._on_report(report)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
        self._context.term()
