"""A session between a gateway's end and a worker with a simulated engine, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from octavo import faults
from octavo.config.engine import SchedulerConfig
from octavo.config.service import WorkerConfig
from octavo.errors import Aborted, InvalidInput, StaleAttempt, TooLong, Unavailable
from octavo.request import Request
from octavo.rpc.session_client import WorkerSession
from octavo.testing.sim import SimSpec
from octavo.testing.worker import SimWorker, sim_config, sim_worker
from session_kit import Listener, expected, request

SPEC = SimSpec(step_ms=2)
SLOW = SimSpec(step_ms=20)


async def open_session(worker: SimWorker, listener: Listener, name: str = "g", **options: int) -> WorkerSession:
    assert worker.status.record is not None
    return await WorkerSession.open(worker.status.record, listener, name, f"{name}-1", **options)


async def all_blocks_free(worker: SimWorker) -> bool:
    for _ in range(100):
        status = await worker.client.status()
        if status.num_live_requests == status.num_running == 0 and status.num_free_blocks == status.num_blocks:
            worker.front.service.check_integrity()
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def worker():
    async with sim_worker(SPEC) as worker:
        yield worker


@pytest.fixture
async def slow_worker():
    async with sim_worker(SLOW, sim_config(WorkerConfig(session_lease_s=1.5))) as worker:
        yield worker


@pytest.fixture(autouse=True)
def _disarm():
    yield
    faults.arm("")


async def test_submit_brings_all_tokens_in_order(worker: SimWorker, listener: Listener):
    session = await open_session(worker, listener)
    await session.submit(request("r", 8, n=2))
    await listener.until(lambda: listener.finish("r", 0) == listener.finish("r", 1) == "length")
    assert (listener.tokens("r", 0), listener.tokens("r", 1)) == (expected(8, 0), expected(8, 1))
    assert listener.emissions[0].num_cached_tokens == 0
    await session.close()
    assert await all_blocks_free(worker)


async def test_a_double_submit_runs_once(worker: SimWorker, listener: Listener):
    session = await open_session(worker, listener)
    await session.submit(request("r"))
    await session.submit(request("r"))
    await listener.until(lambda: listener.finish("r") == "length")
    assert sum(len(e.token_ids) for e in listener.emissions) == 8
    await session.close()


@pytest.mark.parametrize(
    ("bad", "error", "field"),
    [
        (lambda r: setattr(r, "prompt_token_ids", [1, 10**6]), InvalidInput, "prompt"),
        (lambda r: setattr(r, "prompt_token_ids", []), InvalidInput, "prompt"),
        (lambda r: setattr(r, "prompt_token_ids", [1] * 5000), TooLong, "prompt"),
        (lambda r: setattr(r, "params", r.params.replace(max_tokens=10**6)), TooLong, "max_tokens"),
        (lambda r: setattr(r, "params", r.params.replace(temperature=float("nan"))), InvalidInput, "temperature"),
        (lambda r: setattr(r, "sequences", []), InvalidInput, "sequences"),
    ],
    ids=["out of vocabulary", "empty", "too long", "max_tokens", "nan", "no sequence"],
)
async def test_a_bad_request_is_refused_with_its_field(
    worker: SimWorker, listener: Listener, bad: Callable[[Request], None], error: type, field: str
):
    session = await open_session(worker, listener)
    wrong = request("r")
    bad(wrong)
    with pytest.raises(error) as caught:
        await session.submit(wrong)
    assert caught.value.param == field
    await session.submit(request("r"))
    await listener.until(lambda: listener.finish("r") == "length")
    await session.close()


async def test_a_stale_attempt_is_refused(worker: SimWorker, listener: Listener):
    session = await open_session(worker, listener)
    await session.submit(request("r", attempt=2))
    with pytest.raises(StaleAttempt):
        await session.submit(request("r", attempt=1))
    await session.close()


async def test_an_abort_that_comes_first_wins(worker: SimWorker, listener: Listener):
    session = await open_session(worker, listener)
    session.abort("r", 1)
    with pytest.raises(Aborted):
        await session.submit(request("r"))
    await session.close()


async def test_an_abort_frees_everything(slow_worker: SimWorker, listener: Listener):
    session = await open_session(slow_worker, listener)
    await session.submit(request("r", 1000))
    await listener.until(lambda: len(listener.tokens("r")) > 2)
    session.abort("r", 1)
    assert await all_blocks_free(slow_worker)
    await session.close()


async def test_a_higher_attempt_takes_over(slow_worker: SimWorker, listener: Listener):
    session = await open_session(slow_worker, listener)
    await session.submit(request("r", 1000))
    await listener.until(lambda: len(listener.tokens("r")) > 2)
    second = request("r", 6, attempt=2)
    second.sequences[0].output_token_ids = [expected(3)[i] for i in range(3)]
    await session.submit(second)
    await listener.until(lambda: listener.finish("r") == "length")
    resumed = [e for e in listener.emissions if e.attempt == 2]
    assert resumed[0].index_from == 3
    assert listener.tokens("r")[5] == expected(6)[5]
    await session.close()
    assert await all_blocks_free(slow_worker)


@pytest.mark.parametrize("fault", ["#2-4:drop", "%2:double", "%3:reorder"])
async def test_resend_heals_lost_frames(worker: SimWorker, listener: Listener, fault: str):
    session = await open_session(worker, listener)
    faults.arm(f"worker.token_frame{fault}")
    await session.submit(request("r", 16))
    await listener.until(lambda: listener.finish("r") == "length")
    if "drop" in fault:
        missing = [i for i in range(16) if i not in listener.tokens("r")]
        assert missing
        session.resend("r", 1, {0: missing[0]})
    await listener.until(lambda: len(listener.tokens("r")) == 16)
    assert listener.tokens("r") == expected(16)
    await session.close()


async def test_a_lost_last_frame_shows_in_the_heartbeat(worker: SimWorker, listener: Listener):
    session = await open_session(worker, listener)
    faults.arm("worker.token_frame#8:drop")
    await session.submit(request("r", 8))
    await listener.until(lambda: any(s.state == "ended" for s in listener.silent))
    assert listener.silent[-1].sent == {0: 8}
    assert listener.finish("r") is None
    session.resend("r", 1, {0: 7})
    await listener.until(lambda: listener.finish("r") == "length")
    assert listener.tokens("r") == expected(8)
    await session.close()


async def test_another_gateway_attaches(slow_worker: SimWorker, listener: Listener):
    first = await open_session(slow_worker, listener)
    await first.submit(request("r", 120))
    await listener.until(lambda: len(listener.tokens("r")) > 3)
    await first.close()
    heir = Listener()
    second = await open_session(slow_worker, heir, "h")
    await second.attach("r", 1, {0: 2})
    await heir.until(lambda: heir.finish("r") == "length")
    tokens = heir.tokens("r")
    assert min(tokens) == 2
    assert tokens == {i: t for i, t in expected(120).items() if i >= 2}
    with pytest.raises(InvalidInput):
        await second.attach("unknown", 1, {0: 0})
    await second.close()


async def test_a_session_gone_for_its_lease_has_its_requests_aborted(slow_worker: SimWorker, listener: Listener):
    session = await open_session(slow_worker, listener)
    await session.submit(request("r", 3000))
    await listener.until(lambda: len(listener.tokens("r")) > 1)
    await session.close()
    assert (await slow_worker.client.status()).num_live_requests == 1, "the lease has not ended yet"
    assert await all_blocks_free(slow_worker)
    assert (await slow_worker.client.status()).num_sessions == 0


async def test_a_paused_request_stops_and_goes_on(worker: SimWorker, listener: Listener):
    session = await open_session(worker, listener)
    await session.submit(request("r", 300))
    await listener.until(lambda: len(listener.tokens("r")) > 2)
    session.pause("r", 1, True)
    await listener.until(lambda: any(s.state == "paused" for s in listener.silent))
    held = len(listener.tokens("r"))
    await asyncio.sleep(0.2)
    assert len(listener.tokens("r")) == held
    session.pause("r", 1, False)
    await listener.until(lambda: listener.finish("r") == "length")
    assert listener.tokens("r") == expected(300)
    await session.close()


async def test_a_session_that_stops_reading_pauses_only_its_own_requests(listener: Listener):
    config = replace(sim_config(), scheduler=SchedulerConfig(max_num_seqs=80))
    async with sim_worker(SimSpec(step_ms=1, num_blocks=8000), config) as worker:
        stuck = Listener()
        slow = await open_session(worker, stuck, "slow", receive_queue=1, receive_buffer_bytes=4096)
        fast = await open_session(worker, listener, "fast")
        slow.pause_reading()
        await slow.submit(request("wide", 1000, n=64))
        await stuck.until(lambda: any(s.state == "paused" for s in stuck.silent), 20)
        await fast.submit(request("other", 50))
        await listener.until(lambda: listener.finish("other") == "length")
        assert listener.tokens("other") == expected(50)
        assert stuck.emissions == []
        slow.pause_reading(False)
        await stuck.until(lambda: all(stuck.finish("wide", s) == "length" for s in range(64)), 30)
        assert stuck.tokens("wide", 63) == expected(1000, 63)
        await slow.close()
        await fast.close()


async def test_requests_of_a_worker_that_drains(slow_worker: SimWorker, listener: Listener):
    session = await open_session(slow_worker, listener)
    await session.submit(request("r", 30))
    slow_worker.stop.set()
    await listener.until(lambda: slow_worker.front.service.is_draining)
    with pytest.raises(Unavailable, match="draining"):
        await session.submit(request("late"))
    await listener.until(lambda: listener.finish("r") == "length")
    assert listener.tokens("r") == expected(30)
    assert await asyncio.wait_for(slow_worker.result, 5) == 0
    await listener.until(lambda: bool(listener.lost))
    await session.close()


async def test_a_value_that_the_protocol_cannot_carry_fails_its_request_and_no_other(worker, listener):
    session = await open_session(worker, listener)
    bad = request("bad")
    bad.params = bad.params.replace(top_k=2**40)
    with pytest.raises(InvalidInput, match="cannot be sent"):
        await session.submit(bad)
    await session.submit(request("good"))
    await listener.until(lambda: listener.finish("good") is not None)
    assert session.is_open
    await session.close()
