from __future__ import annotations

import pytest

from octavo.errors import InvalidInput
from octavo.hub.generation import GenerationDefaults


def defaults(**config):
    return GenerationDefaults.from_dict(config)


def test_request_over_model_over_default():
    params = defaults(temperature=0.6, top_p=0.9).apply({"temperature": 0.0, "top_k": None})
    assert (params.temperature, params.top_p, params.top_k) == (0.0, 0.9, 0)


@pytest.mark.parametrize(
    ("asked", "expected"), [({"max_tokens": 100}, 20), ({"max_tokens": 5}, 5), ({"max_tokens": None}, 20), ({}, 16)]
)
def test_max_new_tokens_caps_every_request(asked, expected):
    limits = defaults(max_new_tokens=20)
    assert limits.cap(limits.apply(asked), room=1000).max_tokens == expected


@pytest.mark.parametrize(("asked", "expected"), [({"max_tokens": None}, 7), ({"max_tokens": 9}, 9)])
def test_the_cap_yields_to_the_context_but_what_the_client_asked_for_does_not(asked, expected):
    limits = defaults(max_new_tokens=20)
    assert limits.cap(limits.apply(asked), room=7).max_tokens == expected


def test_without_a_cap_none_stays_up_to_the_context():
    assert defaults().apply({"max_tokens": None}).max_tokens is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"temperature": "hot"}, "temperature: got 'hot'"),
        ({"top_p": 2.0}, "top_p: got 2.0"),
        ({"max_new_tokens": 0}, "max_new_tokens: got 0"),
    ],
)
def test_values_no_request_could_use_are_refused(config, said):
    with pytest.raises(InvalidInput, match=said):
        defaults(**config)
