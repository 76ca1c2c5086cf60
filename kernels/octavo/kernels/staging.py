"""`Staging`: small arrays from the host to a fixed place on the device, without waiting for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

NUM_BUFFERS = 4


class Staging:
    """An int32 buffer on the device, filled through a ring of pinned host buffers in the order of the current stream.

    `put` may be called while the device still works with what earlier calls put: the copy waits its turn in the
    stream.  On a device without streams it is a plain copy.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.device_buffer = torch.zeros(size, dtype=torch.int32, device=device)
        self._is_cuda = device.type == "cuda"
        self._hosts = [
            torch.zeros(size, dtype=torch.int32, pin_memory=self._is_cuda)
            for _ in range(NUM_BUFFERS if self._is_cuda else 1)
        ]
        self._hosts_np = [host.numpy() for host in self._hosts]
        self._events = [torch.cuda.Event() for _ in self._hosts] if self._is_cuda else []
        self._next = 0

    def begin(self) -> npt.NDArray[np.int32]:
        """A host buffer to fill, free of earlier copies; `send` takes it from there."""
        if self._is_cuda:
            self._events[self._next].synchronize()
        return self._hosts_np[self._next]

    def send(self, size: int) -> torch.Tensor:
        """Copy the first `size` numbers of the buffer that `begin` gave; the device's view of them."""
        target = self.device_buffer[:size]
        target.copy_(self._hosts[self._next][:size], non_blocking=True)
        if self._is_cuda:
            self._events[self._next].record()
        self._next = (self._next + 1) % len(self._hosts)
        return target
