"""`LLMEngine`: requests in, cumulative outputs out, one step at a time."""

import pytest

from engine_kit import oracle
from octavo.errors import InternalError, InvalidInput
from octavo.llm import EngineProtocol, SamplingParams
from octavo.request import Request, SequenceInput

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def run(engine):
    last = {}
    seen = []
    while engine.has_unfinished_requests():
        for output in engine.step():
            last[output.request_id] = output
            seen.append(output)
    return last, seen


def assert_idle(engine):
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)


def test_it_satisfies_the_engine_protocol(make_engine):
    assert isinstance(make_engine(), EngineProtocol)


def test_outputs_are_cumulative_and_end_with_a_reason(make_engine):
    engine = make_engine()
    engine.add_request("a", "Hello there", PARAMS)
    last, seen = run(engine)
    (final,) = last["a"].outputs
    assert [len(o.outputs[0].token_ids) for o in seen] == [1, 2, 3, 4, 5, 6]
    assert all(final.text.startswith(o.outputs[0].text) for o in seen)
    assert (final.finish_reason, last["a"].finished, seen[0].finished) == ("length", True, False)
    assert last["a"].prompt == "Hello there"


def test_tokens_are_those_of_the_engine_for_every_sequence(make_engine):
    engine = make_engine()
    params = PARAMS.replace(n=3, seed=11)
    ids = [5, 6, 7, 8]
    engine.add_request("a", {"prompt_token_ids": ids}, params)
    last, _ = run(engine)
    request = Request("a", 0, ids, params, [SequenceInput(i) for i in range(3)])
    spec = engine.core.scheduler.spec
    assert [o.token_ids for o in last["a"].outputs] == [oracle(request, i, spec) for i in range(3)]
    assert (last["a"].prompt, last["a"].prompt_token_ids) == (None, ids)


def test_an_id_can_be_used_again_after_its_request_ended(make_engine):
    engine = make_engine()
    outputs = []
    for _ in range(3):
        engine.add_request("a", "again", PARAMS)
        outputs.append(run(engine)[0]["a"].outputs[0].token_ids)
    assert outputs[0] == outputs[1] == outputs[2]


def test_an_id_of_a_live_request_is_refused(make_engine):
    engine = make_engine()
    engine.add_request("a", "one", PARAMS)
    with pytest.raises(InvalidInput, match="in use") as caught:
        engine.add_request("a", "two", PARAMS)
    assert caught.value.param == "request_id"


def test_an_aborted_request_ends_at_once_and_frees_its_blocks(make_engine):
    engine = make_engine()
    engine.add_request("a", "one two three", PARAMS.replace(max_tokens=100))
    engine.add_request("b", "four", PARAMS)
    engine.step()
    output = engine.abort_request("a")
    assert (output.finished, output.outputs[0].finish_reason) == (True, "abort")
    last, _ = run(engine)
    assert set(last) == {"b"}
    assert engine.abort_request("a") is None
    assert_idle(engine)


def test_one_sequence_can_be_aborted_while_the_others_go_on(make_engine):
    engine = make_engine()
    engine.add_request("a", "one two three", PARAMS.replace(n=2))
    engine.step()
    assert not engine.abort_request("a", [1]).finished
    last, _ = run(engine)
    assert [o.finish_reason for o in last["a"].outputs] == ["length", "abort"]
    assert len(last["a"].outputs[0].token_ids) == 6
    assert_idle(engine)


def test_a_stop_string_ends_only_its_sequence_and_is_the_reason(make_engine):
    engine = make_engine()
    engine.add_request("a", "one two three", PARAMS.replace(n=2, max_tokens=40, seed=1))
    full = run(engine)[0]["a"].outputs
    text = full[0].text
    stop = next(c for c in text[2:] if c not in full[1].text and text.index(c) >= 2 and c.isascii())
    engine.add_request("b", "one two three", PARAMS.replace(n=2, max_tokens=40, seed=1, stop=stop))
    first, second = run(engine)[0]["b"].outputs
    assert (first.text, first.finish_reason, first.stop_reason) == (text[: text.index(stop)], "stop", stop)
    assert (second.text, second.finish_reason) == (full[1].text, "length")
    assert_idle(engine)


def test_settings_left_open_come_from_the_generation_config_and_its_cap_holds(make_engine):
    engine = make_engine(defaults={"temperature": 0.0, "max_new_tokens": 3})
    assert engine.frontend.default_params().temperature == 0.0
    engine.add_request("a", "x")
    engine.add_request("b", "x", PARAMS.replace(max_tokens=None))
    last, _ = run(engine)
    assert [len(last[i].outputs[0].token_ids) for i in "ab"] == [3, 3]


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([512], "prompt[0]"),
        ({"text": "x"}, "prompt"),
        (7, "prompt"),
        ([1] * 600, "prompt"),
    ],
)
def test_a_prompt_that_can_never_run_is_refused_and_named(make_engine, prompt, field):
    engine = make_engine()
    with pytest.raises(InvalidInput) as caught:
        engine.add_request("a", prompt, PARAMS)
    assert caught.value.param == field
    assert not engine.has_unfinished_requests()


def test_wrong_settings_are_refused(make_engine):
    engine = make_engine()
    for change in ({"temperature": -1.0}, {"max_tokens": 0}, {"temperature": float("nan")}, {"temperature": "warm"}):
        with pytest.raises(InvalidInput, match=next(iter(change))):
            engine.add_request("a", "x", PARAMS.replace(**change))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (("r", None), "prompt"),
        (("r", "a", {"max_tokens": 3}), "sampling_params"),
        ((5, "a"), "request_id"),
        ((None, "a"), "request_id"),
        (("", "a"), "request_id"),
    ],
)
def test_arguments_of_another_type_are_refused(make_engine, call, field):
    engine = make_engine()
    with pytest.raises(InvalidInput) as caught:
        engine.add_request(*call)
    assert caught.value.param == field
    assert not engine.has_unfinished_requests()


def test_closing_aborts_what_is_live(make_engine):
    engine = make_engine()
    engine.add_request("a", "one", PARAMS)
    engine.step()
    engine.close()
    engine.close()
    assert engine.live_request_ids() == []


def test_lower_priority_values_run_first_under_the_priority_policy(make_engine):
    engine = make_engine(policy="priority", max_num_seqs=1)
    for request_id, priority in (("late", 5), ("soon", 1), ("first", 0)):
        engine.add_request(request_id, "Hello", PARAMS, priority=priority)
    _, seen = run(engine)
    assert [o.request_id for o in seen if o.finished] == ["first", "soon", "late"]


def test_a_fault_while_making_text_ends_that_request_alone(make_engine, monkeypatch):
    engine = make_engine()
    engine.add_request("bad", "one", PARAMS)
    engine.add_request("good", "two", PARAMS)
    reply = engine._replies["bad"]

    def fail(emission):
        raise ValueError("no such piece")

    monkeypatch.setattr(reply, "push", fail)
    last, _ = run(engine)
    assert (last["bad"].outputs[0].finish_reason, last["bad"].error.code) == ("error", "internal")
    assert last["good"].outputs[0].finish_reason == "length"
    with pytest.raises(InternalError, match="no such piece"):
        last["bad"].raise_for_error()
    assert_idle(engine)


def test_an_abort_gives_out_the_text_that_a_stop_string_held_back(make_engine):
    engine = make_engine()
    engine.add_request("a", "one two three", PARAMS.replace(max_tokens=40))
    text = run(engine)[0]["a"].outputs[0].text
    engine.add_request("b", "one two three", PARAMS.replace(max_tokens=40, stop=text + "x"))
    for _ in range(10):
        (held,) = engine.step()
    assert held.outputs[0].text == ""
    output = engine.abort_request("b").outputs[0]
    assert output.text
    assert text.startswith(output.text.rstrip("\ufffd"))
