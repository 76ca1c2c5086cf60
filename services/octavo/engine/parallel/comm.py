"""`Comm`: how the ranks of one engine talk.  Size 1 is a no-op that never imports torch.distributed."""

from __future__ import annotations

from datetime import timedelta

import torch

from octavo.errors import InternalError

TIMEOUT_S = 60.0
"""A collective that takes longer means that a rank hangs; it raises, and the incarnation ends."""


class Comm:
    """One rank of `size`.  Collectives are called by all ranks in the same order, and raise when a rank is gone."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, added in float32 in rank order, so that its bits do not depend on arrival."""
        parts = self._gather(tensor)
        if len(parts) == 1:
            return tensor
        total = parts[0].to(torch.float32, copy=True)
        for part in parts[1:]:
            total += part
        return total.to(tensor.dtype)

    def all_gather(self, tensor: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """The ranks' tensors joined along `dim`, in rank order."""
        parts = self._gather(tensor)
        return tensor if len(parts) == 1 else torch.cat(parts, dim=dim)

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """Rank 0's tensor, written into `tensor` on every rank."""
        return tensor

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor]

    def close(self) -> None:
        """Leave the group; idempotent."""


class GlooComm(Comm):
    """Ranks of one host over gloo: no pickle, no launcher; rank 0 holds the meeting point."""

    def __init__(self, rank: int, size: int, port: int = 0) -> None:
        """`port` of rank 0's store on the loopback; rank 0 gives 0 and reads `port`.  Meet with `connect`."""
        import torch.distributed as dist

        super().__init__(rank, size)
        timeout = timedelta(seconds=TIMEOUT_S)
        self._store = dist.TCPStore(
            "127.0.0.1", port, size, is_master=rank == 0, timeout=timeout, wait_for_workers=False
        )
        self.port = self._store.port
        self._group: dist.ProcessGroupGloo | None = None

    def connect(self) -> None:
        """Wait until every rank is there; raises `InternalError` when one does not come."""
        import torch.distributed as dist

        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(seconds=TIMEOUT_S)
        try:
            self._group = dist.ProcessGroupGloo(self._store, self.rank, self.size, options)
        except RuntimeError as error:
            raise InternalError(f"rank {self.rank}: the ranks did not meet: {error}") from error

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        self._wait(self._connected().broadcast(tensor, 0))
        return tensor

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        self._wait(self._connected().allgather(parts, tensor))
        return parts

    def _connected(self) -> torch.distributed.ProcessGroupGloo:
        if self._group is None:
            raise InternalError(f"rank {self.rank} is not connected")
        return self._group

    def _wait(self, work: torch.distributed.Work) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise InternalError(f"rank {self.rank} lost another rank: {error}") from error

    def close(self) -> None:
        self._group = None
