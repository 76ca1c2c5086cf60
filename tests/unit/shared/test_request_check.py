"""The one check of tokenized requests."""

import pytest

from octavo.errors import InvalidInput, TooLong
from octavo.request_check import check_prompt, check_types
from octavo.sampling_params import SamplingParams


def check(ids, **settings):
    check_prompt(ids, SamplingParams(**settings), vocab_size=100, max_model_len=32)


def test_a_prompt_with_room_for_its_output_passes():
    check([1, 99], max_tokens=30)
    check([0] * 31, max_tokens=None)


def test_an_empty_prompt_is_refused():
    with pytest.raises(InvalidInput, match="at least one token") as caught:
        check([])
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("token_id", [-1, 100, 2**70, "7", 1.0, True, None])
def test_ids_outside_the_vocabulary_and_wrong_types_are_refused_by_index(token_id):
    with pytest.raises(InvalidInput, match="from 0 to 99") as caught:
        check([3, token_id])
    assert caught.value.param == "prompt[1]"


def test_a_prompt_that_fills_the_context_is_too_long():
    with pytest.raises(TooLong, match="got 32 tokens"):
        check([1] * 32, max_tokens=None)


def test_max_tokens_beyond_the_context_says_how_many_fit():
    with pytest.raises(TooLong, match="at most 22 fit") as caught:
        check([1] * 10, max_tokens=23)
    assert caught.value.param == "max_tokens"


def test_all_problems_are_listed_at_once():
    with pytest.raises(InvalidInput, match=r"temperature.*prompt\[0\]"):
        check([-5], temperature=-1.0)


def test_values_close_to_their_type_are_brought_into_it():
    params = check_types(SamplingParams(stop="END", temperature=1, stop_token_ids=[3], logit_bias={4: 1}))
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("END",), (3,), {4: 1.0})
    assert isinstance(params.temperature, float)
    assert check_types(params) == params


def test_values_of_a_wrong_type_are_listed_by_field():
    with pytest.raises(InvalidInput, match=r"temperature: got 'hot'.*max_tokens: got 1.5"):
        check_types(SamplingParams(temperature="hot", max_tokens=1.5))


def test_a_million_wrong_ids_make_one_short_message():
    params = SamplingParams(logit_bias=dict.fromkeys(range(1000, 500000), 1.0), stop_token_ids=(-1,) * 4000)
    problems = params.problems(vocab_size=1000)
    assert [(p.field, p.value) for p in problems] == [("logit_bias", "1000"), ("stop_token_ids", "-1")]
