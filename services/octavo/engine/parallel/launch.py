"""Start the ranks of an engine on this host: rank 0 is the caller, the others are child processes."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys

import msgspec

from octavo.engine.parallel.comm import GlooComm
from octavo.engine.rank_spec import RankSpec
from octavo.errors import InternalError

LENGTH = struct.Struct("<I")
END_TIMEOUT_S = 5.0


class RankLaunch(msgspec.Struct, frozen=True):
    """The first frame on a rank's pipe: who it is, and where the ranks meet (`port` on the loopback)."""

    spec: RankSpec
    rank: int
    port: int
    parent_pid: int


class RankProcess:
    """A rank ≥ 1: a child that gets frames through a pipe.  It ends when the pipe closes or this process ends."""

    def __init__(self, launch: RankLaunch) -> None:
        self.rank = launch.rank
        read_fd, write_fd = os.pipe()
        self._pipe = os.fdopen(write_fd, "wb", buffering=0)
        env = {**os.environ, "OMP_NUM_THREADS": str(launch.spec.num_threads)}
        command = [sys.executable, "-m", "octavo.engine.parallel.rank", "--fd", str(read_fd)]
        try:
            self._process = subprocess.Popen(command, pass_fds=(read_fd,), stdin=subprocess.DEVNULL, env=env)
        finally:
            os.close(read_fd)
        self.send(msgspec.msgpack.encode(launch))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, frame: bytes) -> None:
        """Hand a frame over; raises `InternalError` when the rank is gone."""
        self.check()
        data = memoryview(LENGTH.pack(len(frame)) + frame)
        try:
            while data:
                data = data[self._pipe.write(data) or 0 :]
        except OSError as error:
            raise InternalError(f"rank {self.rank} (process {self.pid}) no longer reads: {error}") from error

    def check(self) -> None:
        """Raise `InternalError` when the process has ended."""
        code = self._process.poll()
        if code is not None:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise InternalError(f"rank {self.rank} (process {self.pid}) has ended {how}")

    def end(self) -> None:
        """Close the pipe and wait; a rank that does not follow is killed.  Idempotent."""
        self._pipe.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_ranks(spec: RankSpec, comm: GlooComm) -> list[RankProcess]:
    """Start ranks 1 … and wait until all have met rank 0's `comm`."""
    ranks: list[RankProcess] = []
    try:
        for rank in range(1, spec.num_ranks):
            ranks.append(RankProcess(RankLaunch(spec, rank, comm.port, os.getpid())))
        comm.connect()
    except BaseException:
        for process in ranks:
            process.end()
        raise
    return ranks
