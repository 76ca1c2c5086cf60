"""`ProbeServer`: a tiny HTTP/1.1 server for `/health`, `/ready` and `/metrics` of services without an HTTP edge."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from octavo.errors import Unavailable

MAX_HEAD_BYTES = 16 * 1024
READ_TIMEOUT_S = 10.0
_REASON = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Answer = tuple[int, str, bytes]
"""Status, content type, body."""


def text(status: int, body: str) -> Answer:
    return status, "text/plain; charset=utf-8", body.encode()


class ProbeServer:
    """Serves GET on fixed paths; each route returns its `Answer` at once."""

    def __init__(self, host: str, port: int, routes: dict[str, Callable[[], Answer]]) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port, self._routes = host, port, routes
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen; returns `host:port`.  Raises `Unavailable` when the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=MAX_HEAD_BYTES)
        except OSError as error:
            raise Unavailable(f"cannot listen on {self.address}: {error}") from None
        self.address = f"{self._host}:{self._server.sockets[0].getsockname()[1]}"
        return self.address

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._respond(head))
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def _respond(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            status, kind, body = text(400, "malformed request line\n")
        elif words[0] not in ("GET", "HEAD"):
            status, kind, body = text(405, f"{words[0]}: only GET and HEAD\n")
        else:
            route = self._routes.get(words[1].split("?", 1)[0])
            status, kind, body = text(404, f"paths: {' '.join(self._routes)}\n") if route is None else route()
        lines = f"HTTP/1.1 {status} {_REASON[status]}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        return (lines + "connection: close\r\n\r\n").encode() + (b"" if words[0] == "HEAD" else body)
