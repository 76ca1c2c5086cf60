"""`LLM`: batches of prompts, in order."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from octavo.errors import InternalError, InvalidInput, Unavailable
from octavo.llm import LLM, SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def generate(llm, prompts, params=PARAMS):
    return llm.generate(prompts, params, use_tqdm=False)


def test_outputs_come_in_the_order_of_the_prompts_whatever_their_length(make_engine):
    llm = LLM(make_engine())
    params = [PARAMS.replace(max_tokens=n) for n in (9, 1, 5)]
    outputs = generate(llm, ["a", "b", "c"], params)
    assert [o.prompt for o in outputs] == ["a", "b", "c"]
    assert [len(o.outputs[0].token_ids) for o in outputs] == [9, 1, 5]


def test_every_form_of_one_prompt_gives_the_same_tokens(make_engine):
    llm = LLM(make_engine())
    ids = llm.get_tokenizer().encode("hello")
    forms = ["hello", ids, {"prompt": "hello"}, {"prompt_token_ids": ids}, ["hello"], [ids]]
    assert len({tuple(generate(llm, form)[0].outputs[0].token_ids) for form in forms}) == 1


def test_no_prompts_give_no_outputs(make_engine):
    assert generate(LLM(make_engine()), []) == []


def test_more_prompts_than_the_queue_takes_all_get_their_answer(make_engine):
    llm = LLM(make_engine(max_num_waiting=2, max_num_seqs=2))
    outputs = generate(llm, [f"prompt {i}" for i in range(40)])
    assert [o.prompt for o in outputs] == [f"prompt {i}" for i in range(40)]
    assert all(o.finished for o in outputs)


def test_one_bad_prompt_is_named_before_anything_runs(make_engine):
    llm = LLM(make_engine())
    with pytest.raises(InvalidInput) as caught:
        generate(llm, ["good", [9999]])
    assert caught.value.param == "prompts[1][0]"
    assert llm.llm_engine.stats().num_steps == 0


def test_as_many_settings_as_prompts_are_wanted(make_engine):
    with pytest.raises(InvalidInput, match="one for each of the 3"):
        generate(LLM(make_engine()), ["a", "b", "c"], [PARAMS, PARAMS])


def interrupt_step(engine, monkeypatch, number, times=1):
    """Have the executor get SIGINT in the middle of its step `number`."""
    execute, calls = engine.core.executor.execute, []

    def interrupted(plan):
        calls.append(plan)
        if len(calls) == number:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return execute(plan)

    monkeypatch.setattr(engine.core.executor, "execute", interrupted)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_ctrl_c_in_a_step_ends_the_call_and_leaves_nothing_behind(make_engine, monkeypatch, number):
    llm = LLM(make_engine())
    want = generate(llm, "c")[0].outputs[0].token_ids
    interrupt_step(llm.llm_engine, monkeypatch, number)
    with pytest.raises(KeyboardInterrupt):
        generate(llm, ["a", "b"], PARAMS.replace(max_tokens=50))
    assert llm.llm_engine.live_request_ids() == []
    assert generate(llm, "c")[0].outputs[0].token_ids == want
    stats = llm.llm_engine.stats()
    assert stats.num_free_blocks == stats.num_blocks
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_breaks_a_step_off_and_the_engine_says_so_from_then_on(make_engine, monkeypatch):
    llm = LLM(make_engine())
    interrupt_step(llm.llm_engine, monkeypatch, 2, times=2)
    with pytest.raises(KeyboardInterrupt):
        generate(llm, "a")
    with pytest.raises(InternalError, match=r"broke off \(KeyboardInterrupt\)"):
        generate(llm, "a")


def test_threads_that_share_one_take_turns(make_engine):
    llm = LLM(make_engine())
    prompts = [f"prompt {i}" for i in range(8)]
    want = [generate(llm, p)[0].outputs[0].token_ids for p in prompts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            got = [f.result()[0].outputs[0].token_ids for f in [pool.submit(generate, llm, p) for p in prompts]]
    finally:
        sys.setswitchinterval(interval)
    assert got == want


def test_the_default_number_of_tokens_yields_to_the_context(make_engine):
    engine = make_engine()
    (output,) = LLM(engine).generate([5] * (engine.frontend.max_model_len - 2), use_tqdm=False)
    assert len(output.outputs[0].token_ids) <= 2


def test_a_closed_one_says_so(make_engine):
    llm = LLM(make_engine())
    llm.close()
    with pytest.raises(Unavailable, match="the engine is closed"):
        generate(llm, "a")


@pytest.mark.parametrize("messages", [[1], [[{"role": "user", "content": "x"}], "y"], "hi", None])
def test_what_is_no_conversation_is_refused(make_engine, messages):
    with pytest.raises(InvalidInput, match="a list of messages"):
        LLM(make_engine()).chat(messages, PARAMS, use_tqdm=False)


@pytest.mark.parametrize("params", [{"max_tokens": 3}, "x", 5])
def test_settings_of_another_type_are_refused(make_engine, params):
    with pytest.raises(InvalidInput, match=r"sampling_params: got .* must be SamplingParams"):
        generate(LLM(make_engine()), "a", params)


def test_chat_renders_the_template_for_one_conversation_or_several(make_engine):
    llm = LLM(make_engine())
    talk = [{"role": "user", "content": "Hi"}]
    (one,) = llm.chat(talk, PARAMS, use_tqdm=False)
    assert one.prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    two = llm.chat([talk, talk], PARAMS, use_tqdm=False)
    assert [o.outputs[0].token_ids for o in two] == [one.outputs[0].token_ids] * 2


def test_a_bad_conversation_is_refused(make_engine):
    for messages in ([], "hello", {"role": "user"}):
        with pytest.raises(InvalidInput, match="messages"):
            LLM(make_engine()).chat(messages, PARAMS)


def test_the_progress_bar_counts_requests(make_engine, capsys):
    LLM(make_engine()).generate(["a", "b", "c"], PARAMS)
    assert "3/3" in capsys.readouterr().err


def test_leaving_the_context_closes_the_engine(make_engine):
    engine = make_engine()
    with LLM(engine) as llm:
        generate(llm, "x")
    assert engine.core._is_closed
