"""The engine loop over a real core, with a scripted front."""

from __future__ import annotations

import pytest

from octavo import faults
from octavo.config.engine import EngineConfig
from octavo.engine.loop import EngineLoop
from octavo.engine.process import self_test
from octavo.errors import InternalError
from octavo.request import Request, SequenceInput
from octavo.sampling_params import SamplingParams
from octavo.testing.sim import SimSpec, make_core, make_record, sim_token
from octavo.wire.message import AbortWork, FromEngine, PauseWork, Shutdown, StepDone, SubmitWork, ToEngine

SPEC = SimSpec()
PROMPT = [1, 2, 3]


class Beat:
    num = 0

    def beat(self) -> None:
        self.num += 1


class Script:
    """Plays commands: one list per `receive`; an empty script shuts down once the engine is idle."""

    def __init__(self, *commands: list[ToEngine]) -> None:
        self.commands = list(commands)
        self.sent: list[FromEngine] = []
        self.polls_s: list[float] = []
        self.is_orphan = False

    def send(self, message: FromEngine) -> None:
        self.sent.append(message)

    def receive(self, timeout_s: float) -> list[ToEngine]:
        self.polls_s.append(timeout_s)
        if self.commands:
            return self.commands.pop(0)
        return [Shutdown()] if timeout_s > 0 else []

    def steps(self) -> list[StepDone]:
        return [m for m in self.sent if isinstance(m, StepDone)]

    def tokens(self, request_id: str) -> list[int]:
        return [t for s in self.steps() for e in s.emissions if e.request_id == request_id for t in e.token_ids]

    def endings(self) -> dict[str, str]:
        return {e.request_id: e.finish_reason for s in self.steps() for e in s.emissions if e.finish_reason}


def submit(request_id: str, max_tokens: int = 4, prompt: list[int] | None = None) -> SubmitWork:
    params = SamplingParams(seed=1, temperature=0.0, max_tokens=max_tokens)
    return SubmitWork(Request(request_id, 1, PROMPT if prompt is None else prompt, params, [SequenceInput(0)]))


def run(*commands: list[ToEngine]) -> Script:
    script = Script(*commands)
    core = make_core(SPEC, sleep=lambda s: None)
    assert EngineLoop(core, script, Beat()).run() == 0
    core.check_integrity()
    return script


def test_one_message_per_step_with_everything_it_put_out():
    script = run([submit("a"), submit("b")])
    full = [s for s in script.steps() if s.emissions]
    assert [len(s.emissions) for s in full] == [2, 2, 2, 2]
    assert script.tokens("a") == [sim_token(PROMPT, 0, i, SPEC.vocab_size) for i in range(4)]
    assert script.endings() == {"a": "length", "b": "length"}


def test_the_last_message_before_idling_says_that_all_blocks_are_free():
    stats = run([submit("a")]).steps()[-1].stats
    assert (stats.num_running, stats.num_free_blocks) == (0, stats.num_blocks)


def test_it_blocks_when_idle_and_does_not_while_stepping():
    script = run([submit("a")])
    assert script.polls_s[0] > 0
    assert script.polls_s[1:4] == [0, 0, 0]


def test_a_request_that_can_never_run_ends_alone():
    script = run([submit("bad", prompt=[10**6]), submit("good")])
    assert script.endings() == {"bad": "error", "good": "length"}
    (bad,) = [e for s in script.steps() for e in s.emissions if e.request_id == "bad"]
    assert bad.error is not None
    assert bad.error.code == "invalid_input"


def test_a_paused_request_does_not_spin_and_goes_on_later():
    script = run([submit("a")], [PauseWork(["a"])], [], [], [PauseWork(["a"], False)])
    assert script.endings() == {"a": "length"}
    assert [p > 0 for p in script.polls_s[2:5]] == [True, True, True]


def test_abort():
    script = run([submit("a", 1000)], [], [AbortWork("a", 1)])
    assert script.endings() == {"a": "abort"}


def test_an_orphan_ends_with_one():
    script = Script()
    script.is_orphan = True
    assert EngineLoop(make_core(SPEC), script, Beat()).run() == 1


def test_a_fault_of_the_engine_propagates():
    faults.arm("engine.step#2:raise")
    try:
        with pytest.raises(InternalError, match=r"engine\.step"):
            run([submit("a")])
    finally:
        faults.arm("")


def test_self_test_passes_and_leaves_nothing():
    core = make_core(SPEC, sleep=lambda s: None)
    beat = Beat()
    self_test(core, make_record(SPEC, EngineConfig(), 100), beat.beat)
    assert beat.num > 0
    assert not core.has_unfinished_requests()


def test_self_test_finds_tokens_outside_the_vocabulary():
    core = make_core(SPEC, sleep=lambda s: None)
    wrong = make_record(SimSpec(vocab_size=1), EngineConfig(), 100)
    with pytest.raises(InternalError, match="self-test"):
        self_test(core, wrong, lambda: None)
