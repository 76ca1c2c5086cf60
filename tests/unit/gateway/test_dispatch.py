import asyncio

import pytest

from gateway_doubles import FakeCluster, FakeRouter, make_record
from octavo.errors import Aborted, Busy, DeadlineExceeded, InvalidInput, Unavailable, UpstreamLost
from octavo.gateway.job import Job
from octavo.gateway.placement import Routers
from octavo.rpc.placement import PlaceRequest

ASK = PlaceRequest(request_id="r", attempt=1, gateway_incarnation="g", model="tiny", num_prompt_tokens=1)


def job(**changes) -> Job:
    return Job(token_ids=[1, 2, 3], explicit={"max_tokens": 4}, **changes)


@pytest.mark.parametrize("timeout_s", [-1.0, float("nan")])
async def test_a_timeout_that_is_no_time_is_refused(tiny_files, timeout_s):
    async with FakeCluster(tiny_files) as cluster:
        with pytest.raises(InvalidInput, match=r"timeout_s: got .*; must be a number of seconds"):
            await cluster.frontend.start(job(timeout_s=timeout_s))


async def collect(cluster: FakeCluster, job: Job) -> list[int]:
    generation = await cluster.frontend.start(job)
    try:
        return [t async for batch in generation.batches() for delta in batch for t in delta.token_ids]
    finally:
        generation.close()


async def test_refused_submit_goes_to_a_spare_with_the_next_attempt(tiny_files):
    async with FakeCluster(tiny_files, num_workers=2) as cluster:
        cluster.refusals["w0"] = Busy("full")
        assert len(await collect(cluster, job())) == 4
        assert [r.attempt for r in cluster.links["w1"].submitted] == [2]
        assert len(cluster.router.asked) == 1


async def test_without_spares_a_new_placement_excludes_the_refuser(tiny_files):
    async with FakeCluster(tiny_files, num_workers=2) as cluster:
        cluster.router.num_spares = 0
        cluster.refusals["w0"] = Busy("full")
        await collect(cluster, job())
        assert [request.exclude for request in cluster.router.asked] == [(), ("w0",)]


async def test_three_refusals_are_the_answer(tiny_files):
    async with FakeCluster(tiny_files, num_workers=5) as cluster:
        cluster.refusals |= {f"w{i}": Busy(f"full {i}", retry_after_s=i) for i in range(5)}
        with pytest.raises(Busy, match="full 2"):
            await collect(cluster, job())
        assert set(cluster.links) == {"w0", "w1", "w2"}


async def test_last_refusal_is_told_when_the_router_has_nobody_else(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        cluster.refusals["w0"] = Busy("full")
        with pytest.raises(Busy):
            await collect(cluster, job())


async def test_bad_input_found_by_a_worker_is_not_tried_elsewhere(tiny_files):
    async with FakeCluster(tiny_files, num_workers=2) as cluster:
        cluster.refusals["w0"] = InvalidInput("bad grammar")
        with pytest.raises(InvalidInput):
            await collect(cluster, job())
        assert "w1" not in cluster.links


async def test_link_lost_after_acceptance_ends_the_stream(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        cluster.loses_after = 0
        with pytest.raises(UpstreamLost):
            await collect(cluster, job())


async def test_lost_link_is_opened_again(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        await collect(cluster, job())
        first = cluster.link
        first.is_open = False
        await collect(cluster, job())
        assert cluster.link is not first


async def test_concurrent_requests_share_one_session(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        await asyncio.gather(*(collect(cluster, job()) for _ in range(8)))
        assert len(cluster.link.submitted) == 8


async def test_cancelled_start_aborts_at_the_worker(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        task = asyncio.create_task(cluster.frontend.start(Job(token_ids=[1], explicit={"max_tokens": 4})))
        while not cluster.links or not cluster.link.submitted:  # noqa: ASYNC110 - turns of the loop, not time
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert cluster.link.aborted
        assert len(cluster.frontend.streams) == 0


async def test_abort_by_label(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        generation = await cluster.frontend.start(Job(token_ids=[1], explicit={"max_tokens": 200}, label="mine"))
        assert cluster.frontend.abort("mine")
        with pytest.raises(Aborted):
            async for _ in generation.batches():
                pass
        generation.close()
        assert not cluster.frontend.abort("mine")


async def test_deadline_is_an_ending(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        generation = await cluster.frontend.start(Job(token_ids=[1], explicit={"max_tokens": 200}, timeout_s=0.01))
        cluster.link.pause(generation.request_id, 1, True)
        with pytest.raises(DeadlineExceeded):
            async for _ in generation.batches():
                pass
        generation.close()
        assert cluster.link.aborted


async def test_draining_refuses_new_requests(tiny_files):
    async with FakeCluster(tiny_files) as cluster:
        cluster.frontend.is_draining = True
        with pytest.raises(Unavailable):
            await cluster.frontend.start(job())


async def test_slow_reader_pauses_only_itself(tiny_files):
    async with FakeCluster(tiny_files, max_stream_buffer_bytes=4096) as cluster:
        slow = await cluster.frontend.start(Job(token_ids=[1], explicit={"max_tokens": 200}))
        assert len(await collect(cluster, Job(token_ids=[2], explicit={"max_tokens": 200}))) == 200
        assert cluster.link.paused == [(slow.request_id, True)]
        assert len([t async for batch in slow.batches() for d in batch for t in d.token_ids]) == 200
        slow.close()


async def test_dead_router_is_passed_over_and_asked_last_afterwards():
    dead, live = FakeRouter([], "dead"), FakeRouter([make_record()], "live")
    dead.error = Unavailable("connection refused")
    routers = Routers([dead, live])
    for _ in range(3):
        await routers.place(ASK)
    assert (len(dead.asked), len(live.asked)) == (1, 3)


async def test_hanging_router_costs_one_timeout():
    class Hanging(FakeRouter):
        async def place(self, request):
            await asyncio.Event().wait()

    routers = Routers([Hanging([], "hangs"), FakeRouter([make_record()], "live")], call_timeout_s=0.01)
    assert (await routers.place(ASK)).decode.worker.worker_id == "w0"


async def test_no_router_at_all_keeps_the_last_fleet():
    router = FakeRouter([make_record()])
    routers = Routers([router])
    assert len(await routers.refresh()) == 1
    router.error = Unavailable("gone")
    assert len(await routers.refresh()) == 1
    with pytest.raises(Unavailable, match="r0: gone"):
        await routers.place(ASK)
