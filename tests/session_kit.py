"""The gateway's side of sessions in tests, and the tokens that a simulated engine must bring."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.lifecycle import until
from octavo.request import Emission, Request, SequenceInput
from octavo.rpc.session import SilentRequest
from octavo.rpc.session_client import WorkerSession
from octavo.sampling_params import SamplingParams
from octavo.testing.sim import SimSpec, sim_token

PROMPT = [1, 2, 3, 4, 5]


class Listener:
    """Collects what sessions receive."""

    def __init__(self) -> None:
        self.emissions: list[Emission] = []
        self.silent: list[SilentRequest] = []
        self.lost: list[str] = []

    def on_emissions(self, link: WorkerSession, emissions: Sequence[Emission]) -> None:
        self.emissions += emissions

    def on_heartbeat(self, link: WorkerSession, silent: Sequence[SilentRequest]) -> None:
        self.silent += silent

    def on_lost(self, link: WorkerSession, reason: str) -> None:
        self.lost.append(reason)

    def tokens(self, request_id: str, sequence: int = 0) -> dict[int, int]:
        """Output tokens by index; a repeated index must bring the same token."""
        out: dict[int, int] = {}
        for e in self.emissions:
            if (e.request_id, e.sequence) == (request_id, sequence):
                for offset, token in enumerate(e.token_ids):
                    assert out.setdefault(e.index_from + offset, token) == token
        return out

    def finish(self, request_id: str, sequence: int = 0) -> str | None:
        reasons = [e.finish_reason for e in self.emissions if (e.request_id, e.sequence) == (request_id, sequence)]
        return next((r for r in reasons if r is not None), None)

    async def until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        assert await until(condition, timeout_s, 0.01), "nothing came in time"


def request(request_id: str, max_tokens: int = 8, attempt: int = 1, n: int = 1, **params: object) -> Request:
    settings = SamplingParams(seed=1, temperature=0.0, max_tokens=max_tokens, n=n, **params)
    return Request(request_id, attempt, list(PROMPT), settings, [SequenceInput(i) for i in range(n)])


def expected(num_tokens: int, sequence: int = 0) -> dict[int, int]:
    return {i: sim_token(PROMPT, sequence, i, SimSpec().vocab_size) for i in range(num_tokens)}
