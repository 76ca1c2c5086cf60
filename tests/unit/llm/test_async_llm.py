"""`AsyncLLM`: streams over an engine on its own thread."""

import asyncio
import threading

import pytest

from octavo.errors import Busy, InternalError, InvalidInput, Unavailable
from octavo.llm import AsyncLLM, EngineProtocol, SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
ROOM = {"num_blocks": 2048, "max_model_len": 30_000}
LONG = PARAMS.replace(max_tokens=29_000)
"""More tokens than any test waits for."""


async def last_of(stream):
    output = None
    async for newest in stream:
        output = newest
    return output


async def until_idle(llm, num_looks=1000):
    """Look until nothing is live, then see that every block is back; each look lets the engine's thread go on."""
    for _ in range(num_looks):
        stats = await llm.stats()
        if not stats.num_running and not stats.num_waiting:
            break
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)
    assert not llm.has_unfinished_requests()


async def test_it_satisfies_the_engine_protocol(make_engine):
    async with AsyncLLM(make_engine()) as llm:
        assert isinstance(llm, EngineProtocol)


async def test_outputs_are_cumulative_and_equal_those_of_a_batch(make_engine):
    async with AsyncLLM(make_engine()) as llm:
        seen = [output.outputs[0] async for output in llm.generate("Hello", PARAMS)]
    assert seen[-1].finish_reason == "length"
    assert all(seen[-1].token_ids[: len(o.token_ids)] == o.token_ids for o in seen)
    engine = make_engine()
    engine.add_request("x", "Hello", PARAMS)
    while engine.has_unfinished_requests():
        outputs = engine.step()
    assert outputs[0].outputs[0].token_ids == seen[-1].token_ids


async def test_many_streams_run_at_once(make_engine):
    async with AsyncLLM(make_engine()) as llm:
        streams = [llm.add_request(f"r{i}", f"prompt {i}", PARAMS.replace(max_tokens=3 + i)) for i in range(12)]
        outputs = await asyncio.gather(*(last_of(s) for s in streams))
        assert [len(o.outputs[0].token_ids) for o in outputs] == [3 + i for i in range(12)]
        await until_idle(llm)


async def test_leaving_the_iterator_aborts_the_request_and_frees_its_blocks(make_engine):
    async with AsyncLLM(make_engine(**ROOM)) as llm:
        stream = llm.generate("Hello", LONG)
        await anext(stream)
        await stream.aclose()
        await until_idle(llm)
        assert (await llm.stats()).num_generation_tokens < 29_000


async def test_cancelling_the_task_aborts_the_request(make_engine):
    async with AsyncLLM(make_engine(**ROOM)) as llm:
        started = asyncio.Event()

        async def read():
            async for _ in llm.generate("Hello", LONG):
                started.set()

        task = asyncio.create_task(read())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_idle(llm)


async def test_abort_ends_the_stream_with_a_last_output(make_engine):
    async with AsyncLLM(make_engine(**ROOM)) as llm:
        stream = llm.add_request("a", "Hello", LONG)
        await anext(stream)
        await llm.abort("a")
        output = await last_of(stream)
        assert (output.finished, output.outputs[0].finish_reason) == (True, "abort")
        await llm.abort("unknown")


async def test_bad_input_is_raised_at_once_and_busy_to_the_reader(make_engine):
    async with AsyncLLM(make_engine(max_num_waiting=1, max_num_seqs=1, **ROOM)) as llm:
        with pytest.raises(InvalidInput, match="at least one token"):
            llm.add_request("a", "", PARAMS)
        streams = [llm.add_request(f"r{i}", "Hello", LONG) for i in range(6)]
        with pytest.raises(Busy):
            await last_of(streams[-1])
        for stream in streams:
            stream.close()
        await until_idle(llm)


async def test_shutdown_ends_open_streams_and_refuses_new_ones(make_engine):
    llm = AsyncLLM(make_engine(**ROOM))
    stream = llm.add_request("a", "Hello", LONG)
    await anext(stream)
    await asyncio.to_thread(llm.shutdown)
    with pytest.raises(Unavailable):
        await last_of(stream)
    with pytest.raises(Unavailable):
        llm.add_request("b", "Hello", PARAMS)
    llm.shutdown()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_failing_engine_ends_every_stream_with_an_error(make_engine, monkeypatch):
    engine = make_engine()

    all_added = threading.Event()

    def fail(plan):
        all_added.wait(10)
        raise RuntimeError("device is gone")

    monkeypatch.setattr(engine.core.executor, "execute", fail)
    llm = AsyncLLM(engine)
    streams = [llm.add_request(f"r{i}", "Hello", PARAMS) for i in range(3)]
    all_added.set()
    for stream in streams:
        with pytest.raises(InternalError, match="device is gone"):
            await last_of(stream)
    with pytest.raises(InternalError):
        llm.add_request("b", "Hello", PARAMS)
    llm.shutdown()
