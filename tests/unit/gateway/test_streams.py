import asyncio

import pytest

from gateway_doubles import FakeLink, make_record
from octavo.errors import Aborted, ErrorDetail, InvalidInput, UpstreamLost
from octavo.gateway.stream import TOKEN_BYTES, Stream
from octavo.gateway.streams import HARD_MIN_BYTES, MAX_ASKED, Streams
from octavo.request import Emission, Request, SequenceInput
from octavo.rpc.session import SilentRequest
from octavo.sampling_params import SamplingParams


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Setup:
    def __init__(self, n: int = 1, max_buffer_bytes: int = 1 << 20) -> None:
        self.clock = Clock()
        self.streams = Streams(max_buffer_bytes, self.clock)
        self.link = FakeLink(make_record(), self.streams)
        self.link._sent["r"] = []
        self.stream = self.open("r", n)

    def open(self, request_id: str, n: int = 1) -> Stream:
        request = Request(request_id, 0, [1], SamplingParams(n=n, seed=1), [SequenceInput(i) for i in range(n)])
        stream = self.streams.open(request)
        self.link._gates[request_id] = asyncio.Event()
        self.streams.place(stream, self.link, 1)
        stream.is_accepted = True
        return stream

    def put(self, index: int, *tokens: int, sequence: int = 0, attempt: int = 1, finish: str | None = None, **more):
        emission = Emission("r", attempt, sequence, index, list(tokens), finish_reason=finish, **more)
        self.streams.on_emissions(self.link, [emission])
        self.streams.check_integrity()

    async def read(self) -> list[int]:
        return [t for e in await self.streams.get(self.stream) for t in e.token_ids]


async def test_reads_in_order_and_ends_once():
    setup = Setup()
    setup.put(0, 5)
    setup.put(1, 6, finish="stop")
    assert await setup.read() == [5, 6]
    assert await setup.streams.get(setup.stream) == []


async def test_old_attempts_and_other_sessions_are_dropped():
    setup = Setup()
    setup.put(0, 5, attempt=0)
    setup.streams.on_emissions(FakeLink(make_record("w9"), setup.streams), [Emission("r", 1, 0, 0, [9])])
    setup.put(0, 7)
    assert await setup.read() == [7]


async def test_gap_asks_resend_once():
    setup = Setup()
    setup.link._sent["r"] = []
    setup.put(0, 5)
    setup.put(2, 7)
    setup.put(3, 8)
    assert setup.link.resent == [("r", 1, {0: 1})]


async def test_tail_gap_is_found_by_the_heartbeat():
    setup = Setup()
    setup.put(0, 5)
    setup.clock.now += 2
    setup.streams.on_heartbeat(setup.link, [SilentRequest("r", 1, "running", 3, {0: 3})])
    assert setup.link.resent == [("r", 1, {0: 1})]


async def test_heartbeat_that_says_the_same_asks_nothing():
    setup = Setup()
    setup.put(0, 5)
    setup.clock.now += 2
    setup.streams.on_heartbeat(setup.link, [SilentRequest("r", 1, "queued", 1, {0: 1})])
    assert setup.link.resent == []


@pytest.mark.parametrize("silent", [[], [SilentRequest("r", 1, "ended", 1, {0: 1})]])
async def test_lost_ending_is_asked_for_and_given_up_in_bounded_time(silent):
    setup = Setup()
    setup.put(0, 5)
    for _ in range(MAX_ASKED + 1):
        setup.clock.now += 2
        setup.streams.on_heartbeat(setup.link, silent)
    assert len(setup.link.resent) == MAX_ASKED
    assert await setup.read() == [5]
    with pytest.raises(UpstreamLost):
        await setup.read()


async def test_lost_worker_ends_its_streams_only():
    setup = Setup()
    other_link = FakeLink(make_record("w1"), setup.streams)
    other = setup.open("other")
    setup.streams.place(other, other_link, 1)
    other.is_accepted = True
    setup.put(0, 5)
    setup.streams.on_lost(setup.link, "connection reset")
    assert await setup.read() == [5]
    with pytest.raises(UpstreamLost, match="worker w0 was lost: connection reset"):
        await setup.read()
    assert not other.is_over


async def test_error_of_a_sequence_is_the_streams_one_ending():
    setup = Setup(n=2)
    setup.put(0, error=ErrorDetail("invalid_input", "bad grammar", "response_format"))
    with pytest.raises(InvalidInput, match="bad grammar"):
        await setup.read()
    assert setup.link.aborted == [("r", 1, ())]


async def test_unread_stream_is_paused_and_resumed_by_reading():
    setup = Setup(max_buffer_bytes=4096)
    index = 0
    while not setup.link.paused:
        setup.put(index, index)
        index += 1
    assert index < 60
    setup.put(index, index)
    assert setup.link.paused == [("r", True)]
    assert len(await setup.read()) == index + 1
    assert setup.link.paused == [("r", True), ("r", False)]


async def test_worker_that_does_not_pause_ends_in_an_error():
    setup = Setup(max_buffer_bytes=4096)
    chunk = 4096
    for number in range(HARD_MIN_BYTES // (chunk * TOKEN_BYTES) + 1):
        setup.put(number * chunk, *range(chunk))
    assert await setup.read()
    with pytest.raises(Aborted, match="unread"):
        await setup.read()


async def test_stop_of_one_sequence_aborts_only_it():
    setup = Setup(n=2)
    setup.put(0, 5)
    setup.streams.end_sequence(setup.stream, 0, "stop")
    assert setup.link.aborted == [("r", 1, (0,))]
    setup.put(1, 6)
    assert await setup.read() == [5]
    setup.streams.end_sequence(setup.stream, 1, "stop")
    assert setup.link.aborted[-1] == ("r", 1, ())


async def test_close_aborts_at_once_and_only_once():
    setup = Setup()
    setup.streams.close(setup.stream)
    setup.streams.close(setup.stream)
    assert setup.link.aborted == [("r", 1, ())]
    assert len(setup.streams) == 0


async def test_close_after_the_end_aborts_nothing():
    setup = Setup()
    setup.put(0, 5, finish="stop")
    setup.streams.close(setup.stream)
    assert setup.link.aborted == []


async def test_second_attempt_goes_on_after_what_arrived():
    setup = Setup(n=2)
    setup.put(0, 5)
    setup.put(0, 6, sequence=1, finish="stop")
    setup.streams.place(setup.stream, setup.link, 2)
    assert setup.stream.request.sequences == [SequenceInput(0, [5])]
