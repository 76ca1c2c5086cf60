"""GB/s of the connectors `shm` and `tcp`, digests on, beside memcpy and a plain socket in the same run.

python benchmarks/transfer.py [--mib 256] [--repetitions 5] [--json FILE]

Pages are those of SmolLM2-135M in float32, blocks of 32 tokens.  A process of its own is the producer (and the plain
socket's sender).  memcpy copies the same pages between two pools; every rate is the median over the repetitions, which
take turns.  `unit` has the consumer use blocks of 16 tokens, so that digests are per unit.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec
import numpy as np
from harness import Figures, report

from octavo.kv.layout import GroupSpec, KVLayout
from octavo.transfer.connector.registry import create_peer
from octavo.transfer.endpoint import Endpoint
from octavo.transfer.machine.noun import Incoming, Reason, Source
from octavo.transfer.message import Hello, Page, Shard, Terms
from octavo.transfer.runner import wait
from octavo.wire.bulk import PeerLink

NUM_LAYERS, NUM_HEADS, HEAD_DIM = 30, 3, 64
ROW_BYTES = NUM_LAYERS * 2 * NUM_HEADS * HEAD_DIM * 4
CONNECTORS = ("shm", "tcp")


def terms_of(worker_id: str, block_size: int, num_blocks: int) -> Terms:
    layout = KVLayout(block_size, NUM_HEADS, HEAD_DIM, "float32", (GroupSpec(0, "full", tuple(range(NUM_LAYERS))),))
    shard = Shard(0, 0, NUM_LAYERS, 0, NUM_HEADS, num_blocks)
    return Terms(worker_id, f"{worker_id}-{os.getpid()}", "weights", layout, (shard,))


class Hooks:
    """Notes the ends; the benchmark has no engine."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}
        self.freed: set[str] = set()

    def begin(self, transfer_id: str) -> None:
        return

    def cancel(self, transfer_id: str, reason: Reason) -> None:
        return

    def lookup(self, hello: Hello) -> None:
        return

    def free(self, transfer_id: str) -> None:
        self.freed.add(transfer_id)

    def commit(self, transfer_id: str, num_tokens: int, payload: bytes) -> None:
        self.ended[transfer_id] = "commit"

    def give_up(self, transfer_id: str, reason: Reason, num_tokens: int, payload: bytes | None) -> None:
        self.ended[transfer_id] = f"{reason.value} after {num_tokens} tokens"


def make_endpoint(worker_id: str, block_size: int, num_blocks: int) -> tuple[Endpoint, Hooks, np.ndarray]:
    connectors = [create_peer(name) for name in CONNECTORS]
    memory, hooks = connectors[0], Hooks()
    region = memory.allocate((num_blocks, ROW_BYTES * block_size))
    region[:] = 1
    terms = terms_of(worker_id, block_size, num_blocks)
    link = PeerLink("127.0.0.1")
    return Endpoint(terms, [region], connectors, link, hooks, time.monotonic, memory=memory), hooks, region


def serve(num_blocks: int) -> None:
    """The producer process: a transfer for each line on stdin, and a socket that sends as many bytes."""
    endpoint, _, region = make_endpoint("p", 32, num_blocks)
    region[:] = np.random.default_rng(0).integers(0, 256, region.shape, np.uint8)
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], msgspec.msgpack.encode(endpoint.terms).hex(), flush=True)
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            transfer_id = sys.stdin.readline().strip()
            if not transfer_id:
                break
            endpoint.reserve(transfer_id, (transfer_id, 1))
            endpoint.fill(transfer_id, [Page(0, i, i) for i in range(num_blocks)])
            endpoint.finish(transfer_id, num_blocks * 32)
        if select.select([server], [], [], 0)[0]:
            peer, _ = server.accept()
            with peer:
                peer.sendall(region.reshape(-1).data)
        if not endpoint.step():
            wait(endpoint, [sys.stdin.fileno(), server.fileno()])
    endpoint.close()


class Run:
    """The consumer, and what it is compared with."""

    def __init__(self, num_blocks: int) -> None:
        command = [sys.executable, __file__, "--serve", str(num_blocks)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        port, terms = self.process.stdout.readline().split()
        self.port, self.peer = int(port), msgspec.msgpack.decode(bytes.fromhex(terms), type=Terms)
        self.num_blocks = num_blocks
        self.num_bytes = num_blocks * 32 * ROW_BYTES
        self.sides = {size: make_endpoint(f"c{size}", size, num_blocks * 32 // size) for size in (32, 16)}
        self.num_transfers = 0

    def memcpy(self) -> float:
        target = self.sides[32][2]
        source = self.sides[16][2].reshape(target.shape)
        start_s = time.perf_counter()
        for block in range(self.num_blocks):
            np.copyto(target[block], source[block])
        return time.perf_counter() - start_s

    def plain_socket(self) -> float:
        target = memoryview(self.sides[32][2].reshape(-1))
        start_s = time.perf_counter()
        with socket.create_connection(("127.0.0.1", self.port)) as peer:
            at = 0
            while at < self.num_bytes:
                at += peer.recv_into(target[at : at + (1 << 20)])
        return time.perf_counter() - start_s

    def pull(self, connector: str, block_size: int) -> float:
        """Seconds from the moment the producer is ready (its digests are taken) until the commit."""
        endpoint, hooks, _ = self.sides[block_size]
        self.num_transfers += 1
        transfer_id = f"{connector}{self.num_transfers}"
        assert self.process.stdin is not None
        transfer = Incoming(transfer_id, (transfer_id, 1), time.monotonic(), num_tokens=self.num_blocks * 32)
        endpoint.open(transfer, [Source("p", self.peer.incarnation, connector)], [self.peer])
        self.process.stdin.write(transfer_id + "\n")
        self.process.stdin.flush()
        endpoint.allocated(transfer_id, [list(range(self.num_blocks * 32 // block_size))])
        start_s = 0.0
        while transfer_id not in hooks.ended:
            was_busy = endpoint.step()
            entry = endpoint.consumer.ledger.get(transfer_id)
            if not start_s and entry is not None and entry.pull is not None and entry.pull.pages:
                start_s = time.perf_counter()
            if not was_busy:
                wait(endpoint)
        took_s = time.perf_counter() - start_s
        if hooks.ended[transfer_id] != "commit":
            raise SystemExit(f"{connector}: {hooks.ended[transfer_id]}")
        endpoint.committed(transfer_id)
        while endpoint.consumer.num_unacked_endings:
            endpoint.step()
        return took_s

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)
        for endpoint, _, _ in self.sides.values():
            endpoint.close()


def measure(run: Run, repetitions: int) -> Figures:
    """GB/s; the first round warms up and does not count."""
    cases: list[tuple[str, str, Callable[[], float]]] = [
        ("one digest a block", "memcpy", run.memcpy),
        ("one digest a block", "socket", run.plain_socket),
        ("one digest a block", "shm", lambda: run.pull("shm", 32)),
        ("one digest a block", "tcp", lambda: run.pull("tcp", 32)),
        ("digests per unit", "shm", lambda: run.pull("shm", 16)),
        ("digests per unit", "tcp", lambda: run.pull("tcp", 16)),
    ]
    figures = Figures()
    for repetition in range(repetitions + 1):
        for what, system, case in cases:
            rate = run.num_bytes / case() / 1e9
            if repetition:
                figures.add(what, system, rate)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="bytes per transfer")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", default="")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    run = Run(max(1, (args.mib << 20) // (32 * ROW_BYTES)))
    try:
        figures = measure(run, args.repetitions)
    finally:
        run.close()
    figures.show("GB/s between two processes", peer="memcpy")
    what = "one digest a block"
    ratios = {
        "shm of memcpy": figures.ratio(what, "shm", what, "memcpy"),
        "tcp of socket": figures.ratio(what, "tcp", what, "socket"),
    }
    print(", ".join(f"{name} {ratio:.0%}" for name, ratio in ratios.items() if ratio))
    report(args.json, gb_per_s=figures.rows(), ratios=ratios)


if __name__ == "__main__":
    main()
