"""Properties of sampling that hold for every row and every setting."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.sampling import filter
from octavo.engine.sampling.sampler import sample
from octavo.engine.sampling.state import SamplerState
from octavo.sampling_params import SamplingParams

VOCAB = 64

rows = st.lists(
    st.one_of(st.floats(-30, 30, width=32), st.just(float("-inf")), st.integers(-3, 3).map(float)),
    min_size=VOCAB,
    max_size=VOCAB,
).map(lambda values: np.array(values, dtype=np.float32))

params = st.builds(
    SamplingParams,
    temperature=st.one_of(st.just(0.0), st.floats(1e-5, 5)),
    top_k=st.integers(-1, 80),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    repetition_penalty=st.floats(0.1, 3),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
    seed=st.integers(0, 2**64 - 1),
    min_tokens=st.integers(0, 4),
    logprobs=st.one_of(st.none(), st.integers(0, 20)),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100), max_size=3),
)

histories = st.lists(st.integers(0, VOCAB - 1), max_size=12)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(rows, params, histories, histories), min_size=1, max_size=6))
def test_a_batch_gives_what_its_rows_give_alone_and_never_raises(batch):
    logits = np.stack([row for row, *_ in batch])
    states = [SamplerState(p, prompt, output, i, (2,), VOCAB) for i, (_, p, prompt, output) in enumerate(batch)]
    together = sample(logits, states)
    for i, choice in enumerate(together):
        (alone,) = sample(logits[i : i + 1].copy(), [states[i]])
        assert (alone.token_id, alone.logprobs, alone.error) == (choice.token_id, choice.logprobs, choice.error)
        assert (choice.error is None) == (0 <= choice.token_id < VOCAB)


@settings(max_examples=200, deadline=None)
@given(rows, params)
def test_filters_keep_the_likeliest_ids_and_at_least_one(row, settings_of_row):
    if settings_of_row.is_greedy or not np.isfinite(row.max()):
        return
    ids, scaled = filter.survivors(row, settings_of_row)
    assert len(ids) == len(scaled) >= 1
    assert np.all(np.diff(ids) > 0)
    dropped = np.setdiff1d(np.arange(VOCAB), ids)
    assert row[ids].max() == row.max()
    assert len(dropped) == 0 or row[dropped].max() <= row[ids].min()
