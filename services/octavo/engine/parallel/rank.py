"""A rank ≥ 1: `python -m octavo.engine.parallel.rank --fd N`, started by rank 0's process.

It builds its part of the model, then executes every plan that comes through the pipe.  It dies with its parent: by the
parent-death signal, and because the pipe closes.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from typing import BinaryIO

import msgspec
import torch

from octavo.engine.parallel.comm import GlooComm
from octavo.engine.parallel.launch import LENGTH, RankLaunch
from octavo.engine.plan import StepPlan
from octavo.engine.rank_spec import build_runner, create_rank_model, load_rank_weights
from octavo.errors import OctavoError
from octavo.kernels.cpu import native

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1


def read_frame(pipe: BinaryIO) -> bytes | None:
    """The next frame, or None when the pipe has closed."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    frame = pipe.read(length)
    return frame if len(frame) == length else None


def run(pipe: BinaryIO) -> int:
    """Build, then execute plans until the pipe closes."""
    first = read_frame(pipe)
    if first is None:
        return 1
    launch = msgspec.msgpack.decode(first, type=RankLaunch)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launch.parent_pid:
        return 1
    spec = launch.spec
    torch.set_num_threads(spec.num_threads)
    native.set_num_threads(spec.num_threads)
    comm = GlooComm(launch.rank, spec.num_ranks, launch.port)
    comm.connect()
    model = create_rank_model(spec, comm)
    load_rank_weights(spec, model, lambda fraction: None)
    runner = build_runner(spec, model, comm, lambda: None)
    decoder = msgspec.msgpack.Decoder(StepPlan)
    while (frame := read_frame(pipe)) is not None:
        runner.execute(decoder.decode(frame))
    return 0


def main(argv: list[str]) -> int:
    if len(argv) != 2 or argv[0] != "--fd":
        print("usage: python -m octavo.engine.parallel.rank --fd N (started by an engine)", file=sys.stderr)
        return 2
    # Ctrl-C reaches the whole process group; rank 0 decides when the ranks end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level="INFO", stream=sys.stderr, format="%(asctime)s %(levelname)s rank %(message)s")
    try:
        with os.fdopen(int(argv[1]), "rb") as pipe:
            return run(pipe)
    except OctavoError as error:
        logger.error("rank ends: %s", error.message)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
