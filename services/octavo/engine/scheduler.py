"""The scheduler: which tokens of which sequences the next step computes, and what came of the last one.

One rule: a sequence has `num_computed` and `num_wanted` tokens, and a step hands out a budget of tokens.  Chunked
prefill, prefix hits, forks, preemption and resume follow from it.  Running sequences come first (those that decode
before those that prefill), then waiting ones in the policy's order, none overtaking another that could be admitted.

`plan()` may be called again before `update()` has seen the result of the plan before: a plan names no sampled token,
blocks that a step in flight still reads keep a hold of that step, and rows of sequences that have ended or lost their
slot since are recognised by their admission.  The scheduler has no clock: `expire` gets the time.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.engine.block_pool import BlockPool, step
from octavo.engine.draft import Draft, Flight, FlightRow
from octavo.engine.plan import BlockCopy, SampledToken, SlotAdmit, StepPlan, StepResult, TableGrow
from octavo.engine.prefix_cache import CacheEvent, PrefixCache
from octavo.engine.remote_legs import RemoteLegs
from octavo.engine.reservation import Reservation, Reservations
from octavo.engine.scheduler_spec import SchedulerSpec
from octavo.engine.sequence import NO_SLOT, LiveRequest, Sequence, Status
from octavo.engine.slot import SlotTable
from octavo.engine.stop import Stop, find_stop
from octavo.engine.waiting import POLICIES, WaitingQueue
from octavo.errors import Busy, DeadlineExceeded, ErrorDetail, InternalError
from octavo.kv.hash import CHAIN_TOKENS, chain_seed, extend_chain
from octavo.request import FINISH_ABORT, FINISH_ERROR, Emission, Request
from octavo.wire.message import EngineStats, RequestState

BUSY_RETRY_S = 1.0


class Scheduler:
    """Owns the live sequences, the block pool, the prefix cache and the slots of one engine."""

    def __init__(self, spec: SchedulerSpec, on_cache_event: Callable[[CacheEvent], None] | None = None) -> None:
        """Raises `InvalidInput` that lists everything wrong with `spec`."""
        spec.check()
        self.spec = spec
        self.pool = BlockPool(spec.num_blocks)
        self.cache = PrefixCache(self.pool, spec.num_groups, spec.enable_prefix_caching, on_cache_event)
        self._slots = SlotTable(spec.max_num_seqs)
        self._policy = POLICIES[spec.policy]()
        self._waiting = WaitingQueue(self._policy)
        self._running: dict[Sequence, None] = {}
        self._requests: dict[str, LiveRequest] = {}
        self.remote = RemoteLegs(Reservations(self.pool, self.cache, spec.block_size, spec.num_groups), spec.block_size)
        self._flights: dict[int, Flight] = {}
        self._num_unstarted = 0
        self._num_arrivals = 0
        self._next_step = 1
        self._last_num_tokens = 0
        self._counters = EngineStats()

    # --- requests --------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> list[Emission]:
        """Queue a request; the emissions are those of branches that need no step (resumed at their end).

        Raises `InvalidInput`, `TooLong` (with the real limit) or `Busy`, and then has changed nothing.  The request id
        must not be live.
        """
        self.spec.check_request(request)
        self.remote.check(request)
        if request.request_id in self._requests:
            raise InternalError(f"request {request.request_id} is live already")
        if self._num_unstarted >= self.spec.max_num_waiting + self._slots.num_free:
            raise Busy(
                f"{self._num_unstarted} requests are waiting; at most {self.spec.max_num_waiting} may",
                retry_after_s=BUSY_RETRY_S,
            )
        seed = chain_seed(request.namespace, self.spec.model_revision)
        live = LiveRequest(request, seed, self._num_arrivals, self._next_step)
        self._num_arrivals += 1
        self._num_unstarted += 1
        self._requests[request.request_id] = live
        limit = self.spec.limit_of(request)
        out: list[Emission] = []
        live.sequences = [Sequence.of(live, branch, self.spec.num_groups, limit) for branch in request.sequences]
        if self.remote.add(live):
            return out
        for sequence in live.sequences:
            self._waiting.push(sequence)
        for sequence in live.sequences:
            stop = self._find_stop(sequence) if sequence.is_resumed else None
            if stop is not None:
                out.append(self._end(sequence, stop.finish_reason, stop.stop_reason))
        return out

    def abort(self, request_id: str, indexes: list[int] | None = None) -> list[Emission]:
        """End a live request, or some of its sequences, with one last emission each; unknown ones are ignored."""
        return self._end_all(request_id, indexes, FINISH_ABORT, None)

    def fail(self, request_id: str, error: ErrorDetail) -> list[Emission]:
        """End a live request with an error."""
        return self._end_all(request_id, None, FINISH_ERROR, error)

    def expire(self, now_s: float) -> list[Emission]:
        """End every request whose deadline (Unix time) is not after `now_s`."""
        late = [r for r, x in self._requests.items() if 0 < x.request.deadline_unix_s <= now_s]
        error = DeadlineExceeded("the request's deadline has passed").detail()
        return [emission for request_id in late for emission in self.fail(request_id, error)]

    def set_paused(self, request_id: str, is_paused: bool) -> None:
        """Stop or go on scheduling a request.  A paused one keeps its blocks until somebody else needs them."""
        live = self._requests.get(request_id)
        if live is not None:
            live.is_paused = is_paused

    # --- pages from another worker -----------------------------------------------------------------------------------

    def grant_pages(self) -> list[Reservation]:
        """Reservations that got their blocks now: pages may be written into them until `commit_pages` or
        `give_up_pages` of the same transfer."""
        if not len(self.remote):
            return []
        num_prepared = sum(len(s.block_tables) for s in self._waiting if s.block_tables[0])
        return self.remote.reservations.grant(self._num_spare() + num_prepared)

    def end_pages(
        self, transfer_id: str, num_tokens: int, first_tokens: dict[int, int], is_complete: bool
    ) -> list[Emission]:
        """No page is written any more; `num_tokens` tokens are verified, all of them if `is_complete`.

        `first_tokens` are the next tokens by sequence, emitted elsewhere already.  The first unfinished sequence takes
        complete pages and the others fork; else what is verified can be found again and the rest is computed here.  The
        emissions are the ends of sequences that their first token ends.
        """
        live, tables, num_shared = self.remote.end(transfer_id, num_tokens, is_complete)
        out: list[Emission] = []
        for sequence in [s for s in (live.sequences if live else ()) if not s.is_finished]:
            if sequence.index in first_tokens:
                sequence.token_ids.append(first_tokens[sequence.index])
                sequence.is_resumed = True
            sequence.status = Status.WAITING
            self._waiting.push(sequence)
            stop = self._find_stop(sequence) if sequence.is_resumed else None
            if stop is not None:
                out.append(self._end(sequence, stop.finish_reason, stop.stop_reason))
            elif tables:
                sequence.block_tables, tables = tables, []
                sequence.num_computed = min(num_tokens, len(sequence.token_ids) - 1)
                sequence.num_published = num_tokens // self.spec.block_size
                sequence.num_cached_tokens = num_shared * self.spec.block_size
        for block in [b for table in tables for b in table]:
            self.pool.release(block)
        return out

    def attempt_of(self, request_id: str) -> int | None:
        """The live attempt of a request, or None."""
        live = self._requests.get(request_id)
        return None if live is None else live.request.attempt

    @property
    def has_unfinished(self) -> bool:
        return bool(self._requests)

    # --- a step ------------------------------------------------------------------------------------------------------

    def plan(self) -> StepPlan | None:
        """The next step, or None when there is nothing to compute now (idle, all paused, or waiting for a result)."""
        draft = Draft(self._next_step, self.spec.max_num_batched_tokens)
        self._plan_running(draft)
        if len(self._waiting) and not draft.is_short:
            self._plan_waiting(draft)
        self._last_num_tokens = 0
        if not draft.work:
            return None
        self._next_step += 1
        flight = Flight(draft.step)
        for sequence, work in draft.work.items():
            sequence.last_step = draft.step
            flight.rows.append(FlightRow(sequence, sequence.admission, work))
        self._flights[draft.step] = flight
        plan = draft.finish(self._slots.take_released())
        self._last_num_tokens = plan.num_tokens
        return plan

    def update(self, result: StepResult) -> list[Emission]:
        """Take the result of the oldest plan in flight and return what it adds to each sequence.

        Raises `InternalError` when the result does not belong to that plan: nothing can be trusted then.
        """
        flight = self._flights.get(result.step)
        if flight is None or result.step != next(iter(self._flights)):
            raise InternalError(f"result of step {result.step}; in flight are {list(self._flights)}")
        tokens = flight.match(result.sampled)
        del self._flights[result.step]
        self.pool.complete_step(result.step)
        self._counters.num_steps += 1
        out: list[Emission] = []
        for (sequence, admission, work), token in zip(flight.rows, tokens, strict=True):
            if sequence.is_finished:
                continue
            if token is not None and token.error is not None:
                out.append(self._end(sequence, FINISH_ERROR, error=token.error))
                continue
            if sequence.admission == admission and sequence.slot != NO_SLOT:
                self._publish(sequence, work.start + work.num_tokens)
            if token is not None:
                out.append(self._accept(sequence, token))
        return out

    # --- views -------------------------------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Gauges and counters; the caller, which has a clock, sets `step_ms`."""
        s = self._counters
        s.num_running = len(self._running)
        s.num_waiting = len(self._waiting)
        s.num_waiting_requests = self._num_unstarted
        s.num_blocks = self.pool.num_blocks
        s.num_free_blocks = self.pool.num_free
        s.num_evictable_blocks = self.pool.num_evictable
        s.num_step_tokens = self._last_num_tokens
        return EngineStats(**{name: getattr(s, name) for name in s.__struct_fields__})

    def states(self) -> list[RequestState]:
        """Where every live request is: the state of its most advanced branch."""
        out = []
        for live in self._requests.values():
            statuses = {s.status for s in live.sequences}
            if live.is_paused:
                state = "paused"
            else:
                order = (Status.RUNNING, Status.PREEMPTED, Status.WAITING, Status.WAITING_KV)
                state = next(s.value for s in order if s in statuses)
            num_outputs = sum(s.num_output_tokens for s in live.sequences)
            out.append(RequestState(live.request.request_id, live.request.attempt, state, num_outputs))
        return out

    def check_integrity(self) -> None:
        """Raise `InternalError` unless every block, slot and queue entry is accounted for."""
        self.pool.check_integrity(table for s in (*self._running, *self._waiting) for table in s.block_tables)
        self.remote.reservations.check_integrity()
        self.cache.check_integrity()
        self._slots.check_integrity([s.slot for s in self._running])
        live = [s for x in self._requests.values() for s in x.sequences if not s.is_finished]
        num_running = sum(s.status is Status.RUNNING for s in live)
        num_remote = sum(s.status is Status.WAITING_KV for s in live)
        if num_running != len(self._running) or len(live) - num_running - num_remote != len(self._waiting):
            raise InternalError(f"{len(live)} live, {len(self._running)} running, {len(self._waiting)} waiting")
        if self._num_unstarted != sum(not x.has_started for x in self._requests.values()):
            raise InternalError(f"{self._num_unstarted} requests counted as waiting")
        if not live and not self._flights and not len(self.remote) and self.pool.num_free != self.pool.num_blocks:
            raise InternalError(f"idle, but only {self.pool.num_free} of {self.pool.num_blocks} blocks are free")

    # --- running sequences -------------------------------------------------------------------------------------------

    def _plan_running(self, draft: Draft) -> None:
        prefilling = []
        for sequence in list(self._running):
            if sequence.slot == NO_SLOT or sequence.live.is_paused:
                continue
            missing = len(sequence.token_ids) + sequence.num_pending - sequence.num_computed
            if missing > 1:
                prefilling.append(sequence)
            elif not sequence.num_pending or sequence.num_wanted < sequence.max_total_tokens:
                self._continue(sequence, 1, draft)
        for sequence in prefilling:
            if sequence.slot != NO_SLOT:
                self._continue(sequence, sequence.num_wanted - sequence.num_computed, draft)

    def _continue(self, sequence: Sequence, missing: int, draft: Draft) -> None:
        num_tokens = self._chunk(missing, draft)
        if not num_tokens:
            return
        tables = sequence.block_tables
        num_new = -(-(sequence.num_computed + num_tokens) // self.spec.block_size) - len(tables[0])
        if num_new > 0:
            if not self._make_room_to_grow(sequence, num_new * len(tables), draft):
                return
            for group, block_ids in enumerate(self._allocate(sequence, num_new)):
                draft.grow(sequence, TableGrow(sequence.slot, group, block_ids))
        self._add_work(sequence, num_tokens, draft)

    def _chunk(self, missing: int, draft: Draft) -> int:
        """How many of `missing` tokens this step can take."""
        if missing <= draft.budget or self.spec.enable_chunked_prefill:
            return min(missing, max(draft.budget, 0))
        # A whole prompt may exceed the budget when it is the only one of its step: else it would never run.
        return 0 if draft.has_prefill else missing

    def _add_work(self, sequence: Sequence, num_tokens: int, draft: Draft) -> None:
        is_sampled = sequence.num_computed + num_tokens == sequence.num_wanted
        draft.add_work(sequence, num_tokens, is_sampled)
        sequence.num_computed += num_tokens
        sequence.num_pending += is_sampled

    def _allocate(self, sequence: Sequence, num_new: int) -> list[list[int]]:
        blocks = self.pool.allocate(num_new * len(sequence.block_tables))
        if blocks is None:
            raise InternalError(f"no room for {num_new} blocks per group, though it was made")
        parts = [blocks[i * num_new : (i + 1) * num_new] for i in range(len(sequence.block_tables))]
        for table, part in zip(sequence.block_tables, parts, strict=True):
            table.extend(part)
        return parts

    def _make_room_to_grow(self, sequence: Sequence, num_blocks: int, draft: Draft) -> bool:
        """Preempt until `num_blocks` are free; False when `sequence` cannot go on in this step."""
        while self.pool.num_free < num_blocks:
            if self.pool.num_free + self.pool.num_releasing >= num_blocks:
                draft.is_short = True  # enough comes back when the steps in flight complete
                return False
            victim = max(self._running, key=self._loss_rank)
            self._preempt(victim, draft)
            if victim is sequence:
                return False
        return True

    def _loss_rank(self, sequence: Sequence) -> tuple[bool, int, int, int, int]:
        """Higher is preempted first: paused, of low priority, with least work to lose, latest come."""
        level = self._policy.level(sequence)
        return (sequence.is_paused, level, -sequence.num_computed, sequence.live.arrival, sequence.index)

    def _preempt(self, sequence: Sequence, draft: Draft) -> None:
        was_admitted_now = draft.drop(sequence)
        self._leave(sequence, is_known_to_runner=not was_admitted_now)
        sequence.status = Status.PREEMPTED
        sequence.num_preemptions += 1
        self._counters.num_preemptions += 1
        self._waiting.push(sequence)
        draft.is_short = True

    # --- waiting sequences -------------------------------------------------------------------------------------------

    def _plan_waiting(self, draft: Draft) -> None:
        for sequence in self._waiting:
            if draft.budget <= 0:
                return
            if sequence.live.is_paused or sequence.num_pending or sequence.status is Status.FINISHED:
                continue
            sibling, has_prompt = self._find_sibling(sequence, draft)
            if sibling is not None and not has_prompt:
                continue  # its prompt is on the way: fork when it is there instead of computing it twice
            if not self._admit(sequence, sibling, draft):
                return

    def _find_sibling(self, sequence: Sequence, draft: Draft) -> tuple[Sequence | None, bool]:
        """A running branch of the same request, one whose prompt earlier steps have computed (True) if there is one."""
        found = None
        for other in sequence.live.sequences:
            if other.slot != NO_SLOT:
                if draft.computed_before(other) >= other.num_prompt_tokens:
                    return other, True
                found = other
        return found, False

    def _admit(self, sequence: Sequence, sibling: Sequence | None, draft: Draft) -> bool:
        """Give a sequence a slot, blocks for all its known tokens, and its first chunk; False when it does not fit.

        `sibling` has computed the prompt.  All known tokens get their blocks at once, so that sequences that prefill
        side by side cannot take each other's room.
        """
        if sequence.block_tables[0]:
            return self._admit_prepared(sequence, draft)
        shared = self.cache.match(self._reusable_hashes(sequence))
        num_hit = len(shared[0]) * self.spec.block_size
        num_shared, start = len(shared[0]), num_hit
        source = sibling if sequence.num_prompt_tokens - 1 > start else None
        if source is not None:
            start = sequence.num_prompt_tokens - 1
            num_shared = start // self.spec.block_size
            shared = [table[:num_shared] for table in source.block_tables]
        num_tokens = self._chunk(len(sequence.token_ids) - start, draft)
        if not num_tokens:
            return False
        num_new = -(-len(sequence.token_ids) // self.spec.block_size) - num_shared
        self._hold_shared(sequence, shared)
        if not self._make_room_to_admit(sequence, num_new * len(shared), draft):
            self._release_tables(sequence)
            return False
        self._waiting.remove(sequence)
        self._allocate(sequence, num_new)
        sequence.num_computed = start
        sequence.num_published = num_shared
        if source is not None:
            self._copy_partial(sequence, source, num_shared, draft)
        self._count_cached(sequence, num_hit)
        self._enter(sequence, draft)
        self._add_work(sequence, num_tokens, draft)
        return True

    def _admit_prepared(self, sequence: Sequence, draft: Draft) -> bool:
        """Admit a sequence whose pages came from another worker: it lacks a slot and at most one block per group."""
        num_tokens = self._chunk(len(sequence.token_ids) - sequence.num_computed, draft)
        if not num_tokens:
            return False
        num_new = -(-len(sequence.token_ids) // self.spec.block_size) - len(sequence.block_tables[0])
        if not self._make_room_to_admit(sequence, num_new * len(sequence.block_tables), draft):
            return False
        self._waiting.remove(sequence)
        self._allocate(sequence, num_new)
        self._count_cached(sequence, max(sequence.num_cached_tokens, 0))
        self._enter(sequence, draft)
        self._add_work(sequence, num_tokens, draft)
        return True

    def _hold_shared(self, sequence: Sequence, shared: list[list[int]]) -> None:
        for table, blocks in zip(sequence.block_tables, shared, strict=True):
            for block in blocks:
                self.pool.hold(block)
            table.extend(blocks)

    def _release_tables(self, sequence: Sequence) -> None:
        """Give the sequence's holds back; what a step in flight uses stays held by that step."""
        is_in_flight = sequence.last_step >= next(iter(self._flights), self._next_step)
        hold = step(sequence.last_step)
        for table in sequence.block_tables:
            for block in reversed(table):  # the tail becomes least recently used, the head is worth most
                if is_in_flight:
                    self.pool.hold(block, hold)
                self.pool.release(block)
            table.clear()

    def _reusable_hashes(self, sequence: Sequence) -> list[bytes]:
        """Hashes of the full blocks before the last known token, which is always computed."""
        if not self.spec.enable_prefix_caching:
            return []
        if not sequence.chain:
            num_values = sequence.num_prompt_tokens // CHAIN_TOKENS
            known = max((s.chain for s in sequence.live.sequences), key=len)
            sequence.chain = known[:num_values]
        extend_chain(sequence.chain, sequence.live.seed, sequence.token_ids)
        stride = self.spec.block_size // CHAIN_TOKENS
        num_blocks = (len(sequence.token_ids) - 1) // self.spec.block_size
        return sequence.chain[stride - 1 : num_blocks * stride : stride]

    def _copy_partial(self, sequence: Sequence, sibling: Sequence, num_shared: int, draft: Draft) -> None:
        """Copy the block that holds the last prompt token: that token is computed again, in a block of its own."""
        sequence.num_published = min(num_shared, sibling.num_published)
        if sequence.num_computed % self.spec.block_size == 0:
            return  # the last prompt token is the first of its block: there is nothing before it to copy
        sibling.last_step = draft.step
        for source, target in zip(sibling.block_tables, sequence.block_tables, strict=True):
            draft.copy(sequence, BlockCopy(source[num_shared], target[num_shared]))

    def _make_room_to_admit(self, sequence: Sequence, num_blocks: int, draft: Draft) -> bool:
        """Whether a slot and `num_blocks` are to be had, if need be by preempting paused or less important ones.

        A few blocks are left to those that run, so that the next step does not have to preempt what this one admitted.
        """
        if self._slots.num_free and self.pool.num_free >= num_blocks + self._num_spare():
            return True
        if not self._running:
            return self._take_from_prepared(sequence, num_blocks)
        victims = [s for s in self._running if self._may_displace(sequence, s) and s not in draft.admits]
        victims.sort(key=self._loss_rank)
        if self.pool.num_free + sum(len(t) for s in victims for t in s.block_tables) < num_blocks:
            return False
        while victims:
            self._preempt(victims.pop(), draft)
            num_wanted = num_blocks + self._num_spare()
            if self.pool.num_free + self.pool.num_releasing >= num_wanted:
                return self.pool.num_free >= num_wanted
        return False

    def _take_from_prepared(self, sequence: Sequence, num_blocks: int) -> bool:
        """Where nothing runs that could give blocks back, the last of those that wait with pages lose theirs."""
        others = [s for s in self._waiting if s.block_tables[0] and s is not sequence]
        while self.pool.num_free < num_blocks and others:
            other = others.pop()
            self._release_tables(other)
            other.num_computed = other.num_published = 0
        return self.pool.num_free >= num_blocks

    def _num_spare(self) -> int:
        num_active = sum(not s.is_paused for s in self._running)
        return self.spec.num_groups * min(num_active, max(1, self.spec.num_blocks // 32))

    def _may_displace(self, sequence: Sequence, other: Sequence) -> bool:
        if other.live is sequence.live:
            return False
        return other.is_paused or self._policy.has_precedence(sequence, other)

    def _enter(self, sequence: Sequence, draft: Draft) -> None:
        sequence.slot = self._slots.take()
        sequence.status = Status.RUNNING
        sequence.admission += 1
        self._running[sequence] = None
        request = sequence.live.request
        admit = SlotAdmit(
            slot=sequence.slot,
            token_ids=list(sequence.token_ids),
            num_prompt_tokens=sequence.num_prompt_tokens,
            sequence=sequence.index,
            params=request.params,
            block_tables=[list(table) for table in sequence.block_tables],
        )
        draft.admit(sequence, admit)

    def _count_cached(self, sequence: Sequence, num_hit: int) -> None:
        """Note how much of the prompt was found; branches of one request tell the same, however they got theirs."""
        if not sequence.live.has_started:
            sequence.live.has_started = True
            self._num_unstarted -= 1
            self._counters.num_prompt_tokens += sequence.num_prompt_tokens
            self._counters.prefix_cache_queries += sequence.num_prompt_tokens
            self._counters.prefix_cache_hits += min(num_hit, sequence.num_prompt_tokens)
        if sequence.num_cached_tokens < 0:
            first = next((s for s in sequence.live.sequences if s.num_cached_tokens >= 0), None)
            sequence.num_cached_tokens = first.num_cached_tokens if first else min(num_hit, sequence.num_prompt_tokens)

    # --- what a step gave --------------------------------------------------------------------------------------------

    def _publish(self, sequence: Sequence, num_committed: int) -> None:
        """Make the full blocks among the first `num_committed` tokens findable: their tokens are accepted."""
        num_full = num_committed // self.spec.block_size
        if num_full <= sequence.num_published or not self.spec.enable_prefix_caching:
            return
        extend_chain(sequence.chain, sequence.live.seed, sequence.token_ids)
        stride = self.spec.block_size // CHAIN_TOKENS
        for index in range(sequence.num_published, num_full):
            block_hash = sequence.chain[(index + 1) * stride - 1]
            for group, table in enumerate(sequence.block_tables):
                self.cache.publish(group, block_hash, table[index])
        sequence.num_published = num_full

    def _accept(self, sequence: Sequence, sampled: SampledToken) -> Emission:
        sequence.num_pending -= 1
        index_from = sequence.num_output_tokens
        sequence.token_ids.append(sampled.token_id)
        self._counters.num_generation_tokens += 1
        emission = self._emission(sequence, index_from, [sampled.token_id])
        if sampled.logprobs is not None:
            emission.logprobs = [sampled.logprobs]
        stop = self._find_stop(sequence)
        if stop is not None:
            emission.finish_reason, emission.stop_reason = stop
            self._finish(sequence)
        return emission

    def _find_stop(self, sequence: Sequence) -> Stop | None:
        return find_stop(
            sequence.token_ids[-1],
            sequence.num_output_tokens,
            len(sequence.token_ids) >= sequence.max_total_tokens,
            sequence.live.request.params,
            self.spec.eos_token_ids,
        )

    def _emission(self, sequence: Sequence, index_from: int, token_ids: list[int]) -> Emission:
        request = sequence.live.request
        num_cached = -1 if sequence.has_emitted else max(sequence.num_cached_tokens, 0)
        sequence.has_emitted = True
        return Emission(
            request.request_id,
            request.attempt,
            sequence.index,
            index_from,
            token_ids,
            num_cached_tokens=num_cached,
        )

    # --- endings -----------------------------------------------------------------------------------------------------

    def _end_all(
        self, request_id: str, indexes: list[int] | None, finish_reason: str, error: ErrorDetail | None
    ) -> list[Emission]:
        live = self._requests.get(request_id)
        if live is None:
            return []
        chosen = [s for s in live.sequences if not s.is_finished and (indexes is None or s.index in indexes)]
        return [self._end(sequence, finish_reason, error=error) for sequence in chosen]

    def _end(
        self,
        sequence: Sequence,
        finish_reason: str,
        stop_reason: int | None = None,
        error: ErrorDetail | None = None,
    ) -> Emission:
        emission = self._emission(sequence, sequence.num_output_tokens, [])
        emission.finish_reason, emission.stop_reason, emission.error = finish_reason, stop_reason, error
        self._finish(sequence)
        return emission

    def _finish(self, sequence: Sequence) -> None:
        live = sequence.live
        if sequence.slot != NO_SLOT:
            self._leave(sequence, is_known_to_runner=True)
        elif sequence.status is not Status.WAITING_KV:
            self._waiting.remove(sequence)
            self._release_tables(sequence)
        sequence.status = Status.FINISHED
        if all(s.is_finished for s in live.sequences):
            self.remote.forget(live)
            del self._requests[live.request.request_id]
            self._num_unstarted -= not live.has_started

    def _leave(self, sequence: Sequence, is_known_to_runner: bool) -> None:
        """Take slot and blocks from a running sequence."""
        del self._running[sequence]
        self._slots.give(sequence.slot, is_known_to_runner)
        sequence.slot = NO_SLOT
        self._release_tables(sequence)
        sequence.num_computed = 0
        sequence.num_published = 0
