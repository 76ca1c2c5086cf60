"""What a caller gives the client and no field of the wire takes."""

import pytest

from octavo.client.aio import chat_call, generate_call
from octavo.errors import InvalidInput
from octavo.rpc import convert_public

WRONG = [object(), [object()], {"a": object()}, "\ud800"]
HUGE = 10**40
FLAGS = ["ignore_eos", "skip_special_tokens", "detokenize", "include_stop_str_in_output", "echo_prompt_ids"]
TEXTS = ["model", "request_id", "cache_salt", "stop"]
NUMBERS = ["n", "temperature", "top_k", "seed", "min_tokens", "max_tokens", "logprobs", "priority", "timeout_s"]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("name", [*FLAGS, *TEXTS, *NUMBERS, "params", "logit_bias", "stop_token_ids"])
def test_any_option_of_another_type_is_refused_by_name(name, wrong):
    with pytest.raises(InvalidInput) as caught:
        convert_public.generate_to_pb(generate_call("Hi", {name: wrong}))
    assert caught.value.param == name


@pytest.mark.parametrize("name", [*FLAGS, "n", "top_k", "seed", "max_tokens", "logprobs", "priority", "stop_token_ids"])
def test_a_number_beyond_its_field_is_refused_by_name(name):
    value = [HUGE] if name == "stop_token_ids" else HUGE
    with pytest.raises(InvalidInput) as caught:
        convert_public.generate_to_pb(generate_call("Hi", {name: value}))
    assert caught.value.param == name


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("name", ["add_generation_prompt", "continue_final_message"])
def test_any_option_of_a_chat_too(name, wrong):
    with pytest.raises(InvalidInput) as caught:
        convert_public.chat_to_pb(chat_call([{"role": "user", "content": "Hi"}], {name: wrong}))
    assert caught.value.param == name


@pytest.mark.parametrize("wrong", [None, 5, "\ud800"], ids=repr)
def test_small_calls_too(wrong):
    for make in (
        lambda: convert_public.tokenize_to_pb("", wrong, True),
        lambda: convert_public.detokenize_to_pb("", [wrong, -1], True),
        lambda: convert_public.abort_to_pb(wrong),
    ):
        with pytest.raises(InvalidInput):
            make()
