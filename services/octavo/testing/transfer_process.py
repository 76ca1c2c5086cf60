"""A producer in a process of its own, for tests that stop or kill it: `python -m octavo.testing.transfer_process`.

Arguments: connector name, number of tokens.  It reserves transfer `t`, prints its terms as hex of msgpack, and obeys
lines on stdin: `fill N` (pages), `finish`.  It ends with its stdin.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from octavo.testing.connector_engine import Shape, Worker
from octavo.transfer.connector.registry import create_peer
from octavo.transfer.runner import wait
from octavo.wire.bulk import PeerLink


def main(name: str, num_tokens: int) -> None:
    worker = Worker("p", Shape(), [create_peer(name)], PeerLink("127.0.0.1"), time.monotonic, life=os.getpid())
    pages = worker.reserve("t", num_tokens)
    print(msgspec.msgpack.encode(worker.terms).hex(), flush=True)
    stdin = sys.stdin.fileno()
    os.set_blocking(stdin, False)
    rest = b""
    while True:
        try:
            data = os.read(stdin, 4096)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                verb, _, number = line.decode().partition(" ")
                if verb == "fill":
                    count = int(number)
                    worker.endpoint.fill("t", pages[:count])
                    del pages[:count]
                elif verb == "finish":
                    worker.endpoint.finish("t", num_tokens, b"token 0")
        except BlockingIOError:
            pass
        if not worker.step():
            wait(worker.endpoint, [stdin])
    worker.endpoint.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
