"""`GatewayServer`: the listening sockets of a gateway and their orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from octavo.errors import InvalidInput, Unavailable
from octavo.gateway.frontend import Frontend
from octavo.gateway.grpc_api import GrpcApi
from octavo.gateway.http.app import create_app
from octavo.gateway.http.protocol import HttpProtocol
from octavo.lifecycle import until
from octavo.rpc.public_server import add_public
from octavo.rpc.server import GrpcServer

logger = logging.getLogger(__name__)

SEND_BUFFER_BYTES = 128 * 1024
"""Kernel buffer per connection: what a client that does not read can hold back beyond the stream's own buffer."""
KEEP_ALIVE_S = 65
"""How long a connection may be silent when it is the client's turn; above the idle limit of usual proxies and client
pools, so that they close first."""
REFRESH_S = 0.25
"""How old the known fleet may be.  It is part of how long a stopped engine still counts as ready here."""
LAST_WORDS_S = 2.0
"""Time for streams that were ended at shutdown to tell their clients."""


class _Uvicorn(uvicorn.Server):
    """uvicorn without its own signal handling: the process decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as in the base class
        yield


class GatewayServer:
    """HTTP and gRPC over one frontend.  `start`, then `drain` once, from the same event loop."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend
        self.http_address = ""
        self.grpc_address = ""
        self.became_ready = asyncio.Event()
        self._app: FastAPI = create_app(frontend)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen.  Raises `Unavailable` when a port is taken."""
        config = self.frontend.config
        listener = _listen(config.host, config.port)
        port = listener.getsockname()[1]
        self.http_address = f"{config.host}:{port}"
        grpc_port = port + 1 if config.grpc_port < 0 else config.grpc_port
        self._grpc = GrpcServer(config.host, grpc_port, config.max_body_bytes)
        add_public(self._grpc, GrpcApi(self.frontend))
        try:
            self.grpc_address = await self._grpc.start()
        except BaseException:
            listener.close()
            raise
        settings = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=HttpProtocol,
            ws="none",
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(config.shutdown_timeout_s + LAST_WORDS_S + 1),
        )
        self._http = _Uvicorn(settings)
        self._serving = asyncio.create_task(self._http.serve([listener]), name="http")
        self._tasks.append(asyncio.create_task(self._watch_fleet(), name="fleet"))

    async def drain(self, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Stop accepting, let streams end for `shutdown_timeout_s` (or until `is_urgent`), end the others, close."""
        frontend = self.frontend
        frontend.is_draining = True
        self._http.should_exit = True
        timeout_s = frontend.config.shutdown_timeout_s
        stop_grpc = asyncio.create_task(self._grpc.stop(timeout_s + LAST_WORDS_S))
        if not await until(lambda: not len(frontend.streams) or is_urgent(), timeout_s):
            logger.warning("ending %d streams that did not end within %g s", len(frontend.streams), timeout_s)
        frontend.streams.fail_all(Unavailable("the server is shutting down"))
        for task in self._tasks:
            task.cancel()
        await asyncio.wait({self._serving, stop_grpc}, timeout=LAST_WORDS_S + 1)
        self._serving.cancel()
        stop_grpc.cancel()
        await asyncio.gather(self._serving, stop_grpc, *self._tasks, return_exceptions=True)
        await frontend.close()

    async def _watch_fleet(self) -> None:
        while True:
            await self.frontend.routers.refresh()
            is_ready = await self.frontend.is_ready()
            await self._grpc.set_serving(is_ready)
            if is_ready:
                self.became_ready.set()
            await asyncio.sleep(REFRESH_S)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidInput(f"host: got {host!r}; {error}", param="host") from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
