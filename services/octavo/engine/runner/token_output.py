"""`TokenOutput`: sampled tokens on their way from the device to the host."""

from __future__ import annotations

from collections.abc import Callable

import torch

NUM_BUFFERS = 4


class TokenOutput:
    """Owns `chosen` int32 [max_rows], where steps leave their tokens, and a ring of pinned buffers for copies of it."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self.chosen = torch.zeros(max_rows, dtype=torch.int32, device=device)
        self._is_cuda = device.type == "cuda"
        self._hosts = [torch.zeros(max_rows, dtype=torch.int32, pin_memory=self._is_cuda) for _ in range(NUM_BUFFERS)]
        self._events = [torch.cuda.Event() for _ in self._hosts] if self._is_cuda else []
        self._next = 0

    def copy(self, num_rows: int) -> Callable[[], list[int]]:
        """Launch a copy of the first `num_rows`; call the result to wait for it, before `NUM_BUFFERS` more copies."""
        at, self._next = self._next, (self._next + 1) % NUM_BUFFERS
        host = self._hosts[at][:num_rows]
        host.copy_(self.chosen[:num_rows], non_blocking=True)
        if self._is_cuda:
            self._events[at].record()

        def wait() -> list[int]:
            if self._is_cuda:
                self._events[at].synchronize()
            tokens: list[int] = host.tolist()
            return tokens

        return wait
