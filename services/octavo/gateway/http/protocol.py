"""HTTP on one connection: uvicorn's protocol with a bound on a request's head and on how long its rest may take."""

from __future__ import annotations

import logging
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from octavo.errors import HeadTooLarge, InvalidInput, OctavoError
from octavo.gateway.http.error import error_response

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024
"""Of request line and headers together.  One more read of the socket may be kept before a longer head is noticed."""

LINGER_S = 1.0
"""How long what a refused client still sends is read and dropped, so that it gets to its answer."""


class HttpProtocol(HttpToolsProtocol):
    """Answers what is no HTTP, or too long a head, with an OpenAI error, and closes connections that stop halfway."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_in_head = False
        self._is_refused = False
        self._num_head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limit_wait()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        was_in_head = self._is_in_head
        try:
            self.parser.feed_data(data)
            if was_in_head and self._is_in_head:
                self._count_head(len(data))
        except httptools.HttpParserUpgrade:
            logger.debug("a client asked for another protocol than HTTP")
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, OctavoError) else InvalidInput("request: it is no valid HTTP/1.1"))
        except HeadTooLarge as error:
            self._refuse(error)
        else:
            self._limit_wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes = True, 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge(f"headers: got more than {MAX_HEAD_BYTES} bytes; at most {MAX_HEAD_BYTES} are allowed")

    def _limit_wait(self) -> None:
        """Close the connection when its client sends nothing for the keep-alive time though it is its turn."""
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete
        if not is_idle and (not cycle.more_body or self.flow.read_paused):
            return
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _refuse(self, error: OctavoError) -> None:
        """Answer a request that cannot be parsed, unless an answer is under way, and close."""
        logger.info("refused a connection's request: %s", error.message)
        if self.cycle is None or self.cycle.response_complete:
            response = error_response(error)
            head = [b"HTTP/1.1 %d \r\nconnection: close\r\n" % response.status_code]
            head += [b"%s: %s\r\n" % pair for pair in response.raw_headers]
            self.transport.write(b"".join([*head, b"\r\n", bytes(response.body)]))
        # Closing with unread data resets the connection, and the client may never see the answer: read on for a while.
        self._is_refused = True
        self.loop.call_later(LINGER_S, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()
