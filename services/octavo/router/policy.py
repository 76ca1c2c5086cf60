"""Placement policies: each ranks the candidates for a request, best first, and says what it thinks each costs.

A policy is a class registered with `@policy`, or an entry point of the group `octavo.router_policy`.  Candidates have
passed all filters.  Policies are pure: randomness is an argument.
"""

from __future__ import annotations

import importlib.metadata
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from octavo.errors import InvalidInput
from octavo.kv.record import WorkerRecord
from octavo.rpc.placement import CostTerm, PlaceRequest

ENTRY_POINTS = "octavo.router_policy"
NOMINAL_REQUEST_MS = 1000.0
"""What one request ahead counts in the cost terms of policies that measure nothing."""


@dataclass(frozen=True)
class Candidate:
    """A worker that could take the request, with its load as known now."""

    record: WorkerRecord
    num_in_flight: int
    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0
    unconfirmed_tokens: int = 0


@dataclass(frozen=True)
class Choice:
    """A candidate with its predicted cost, in milliseconds by term."""

    candidate: Candidate
    cost: tuple[CostTerm, ...] = ()

    @property
    def total_ms(self) -> float:
        return sum(term.ms for term in self.cost)


class Policy(ABC):
    """Ranks candidates; may keep state of its own."""

    name: ClassVar[str]

    @abstractmethod
    def rank(self, request: PlaceRequest, candidates: Sequence[Candidate], rng: random.Random) -> list[Choice]:
        """All candidates, best first; ties at random by `rng`."""


POLICIES: dict[str, type[Policy]] = {}


def policy(cls: type[Policy]) -> type[Policy]:
    """Register a policy class under its name."""
    POLICIES[cls.name] = cls
    return cls


def make_policy(name: str) -> Policy:
    """The policy called `name`; raises `InvalidInput` that lists what there is."""
    if name in POLICIES:
        return POLICIES[name]()
    points = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name not in points:
        known = sorted({*POLICIES, *points})
        raise InvalidInput(f"routing_policy: got {name!r}; must be one of {known}", param="routing_policy")
    made: Policy = points[name].load()()
    return made


def shuffled(candidates: Sequence[Candidate], rng: random.Random) -> list[Candidate]:
    return rng.sample(list(candidates), len(candidates))


@policy
class LeastLoaded(Policy):
    """The worker with the fewest requests in flight for its size; waiting requests count twice."""

    name = "least_loaded"

    def rank(self, request: PlaceRequest, candidates: Sequence[Candidate], rng: random.Random) -> list[Choice]:
        choices = [Choice(c, self._cost(c)) for c in shuffled(candidates, rng)]
        return sorted(choices, key=lambda choice: choice.total_ms)

    def _cost(self, candidate: Candidate) -> tuple[CostTerm, ...]:
        share = NOMINAL_REQUEST_MS / max(1, candidate.record.max_num_seqs)
        return (
            CostTerm("in_flight", candidate.num_in_flight * share),
            CostTerm("waiting", candidate.num_waiting * share),
        )


@policy
class RoundRobin(Policy):
    """The workers in turn, by id, starting after the one chosen last."""

    name = "round_robin"

    def __init__(self) -> None:
        self._last = ""

    def rank(self, request: PlaceRequest, candidates: Sequence[Candidate], rng: random.Random) -> list[Choice]:
        ordered = sorted(candidates, key=lambda c: c.record.worker_id)
        turn = [c for c in ordered if c.record.worker_id > self._last]
        turn += [c for c in ordered if c.record.worker_id <= self._last]
        if turn:
            self._last = turn[0].record.worker_id
        return [Choice(c) for c in turn]
