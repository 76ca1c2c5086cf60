"""A model hub on loopback: the endpoints that fetching uses, over real HTTP, from files in memory."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

COMMIT = "0123456789abcdef0123456789abcdef01234567"

_API = re.compile(r"/api/models/([^/?]+/[^/?]+)(?:/revision/([^/?]+))?(?:\?.*)?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class HubServer:
    """`repositories`: id → file name → bytes.  `cuts`: file name → byte counts after which a connection breaks, one per
    request.  `token`: what a private hub wants.  `requests` records (method, path, Range header)."""

    repositories: dict[str, dict[str, bytes]]
    cuts: dict[str, list[int]] = field(default_factory=dict)
    token: str = ""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def __enter__(self) -> HubServer:
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fetched(self) -> list[str]:
        """The files whose content was asked for, in order, each once."""
        matches = (_RESOLVE.fullmatch(path) for method, path, _ in self.requests if method == "GET")
        return list(dict.fromkeys(m[3] for m in matches if m))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""

    def _answer(self, has_body: bool) -> None:
        self.hub.requests.append((self.command, self.path, self.headers.get("Range")))
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._fail(401, "RepoNotFound")
        elif match := _API.fullmatch(self.path):
            self._describe(match[1], match[2])
        elif match := _RESOLVE.fullmatch(self.path):
            self._send_file(match[1], match[3], has_body)
        else:
            self._fail(404, "EntryNotFound")

    def _describe(self, repo_id: str, revision: str | None) -> None:
        files = self.hub.repositories.get(repo_id)
        if files is None:
            self._fail(401, "RepoNotFound")
        elif revision not in (None, "main", COMMIT):
            self._fail(404, "RevisionNotFound")
        else:
            siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
            body = json.dumps({"id": repo_id, "modelId": repo_id, "sha": COMMIT, "siblings": siblings}).encode()
            self._start(200, len(body), {"Content-Type": "application/json"})
            self.wfile.write(body)

    def _send_file(self, repo_id: str, name: str, has_body: bool) -> None:
        data = self.hub.repositories.get(repo_id, {}).get(name)
        if data is None:
            self._fail(404, "EntryNotFound")
            return
        start = int((self.headers.get("Range") or "bytes=0-")[len("bytes=") :].split("-")[0])
        extra = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if start:
            extra["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._start(206 if start else 200, len(data) - start, extra)
        if not has_body:
            return
        cuts = self.hub.cuts.get(name)
        if cuts:
            self.wfile.write(data[start : start + cuts.pop(0)])
            self.close_connection = True
        else:
            self.wfile.write(data[start:])

    def _fail(self, status: int, code: str) -> None:
        self._start(status, 0, {"X-Error-Code": code, "X-Error-Message": code})

    def _start(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
