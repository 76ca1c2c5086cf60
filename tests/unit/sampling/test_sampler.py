"""What `sample()` chooses: order of the steps, filters, penalties, masks, logprobs, errors, independence of rows."""

import numpy as np
import pytest

from octavo.engine.sampling import filter, noise, select
from octavo.engine.sampling.sampler import sample
from octavo.engine.sampling.state import SamplerState
from octavo.sampling_params import SamplingParams

EOS = 2


def state(params, prompt=(5, 6), output=(), sequence=0, vocab=16):
    return SamplerState(params, list(prompt), list(output), sequence, (EOS,), vocab)


def rows(*values):
    return np.array(values, dtype=np.float32)


def one(row, params, **facts):
    row = np.asarray(row, dtype=np.float32)
    (choice,) = sample(row[None], [state(params, vocab=len(row), **facts)])
    return choice


def kept(row, **settings):
    ids, _ = filter.survivors(np.asarray(row, dtype=np.float32), SamplingParams(**settings))
    return ids.tolist()


def test_greedy_takes_the_highest_logit_and_the_lowest_id_on_a_tie():
    assert one([0, 3, 1, 3], SamplingParams(temperature=0)).token_id == 1


def test_a_temperature_below_the_limit_is_greedy_without_a_seed():
    assert one([0, 1, 0.999], SamplingParams(temperature=9e-6)).token_id == 1


def test_top_k_keeps_all_ties_at_the_kth_value():
    assert kept([1, 5, 4, 4, 4, 0], top_k=2) == [1, 2, 3, 4]


def test_top_k_beyond_the_vocabulary_keeps_everything():
    assert kept([1, 5, 4], top_k=99) == [0, 1, 2]


def test_top_p_includes_the_token_that_crosses():
    assert kept(np.log([0.5, 0.3, 0.15, 0.05]), top_p=0.6) == [0, 1]


def test_top_p_takes_ties_by_lowest_id():
    assert kept(np.zeros(8), top_p=0.3) == [0, 1, 2]


def test_top_p_applies_after_top_k():
    row = np.log([0.4, 0.3, 0.2, 0.1])
    assert kept(row, top_p=0.55) == [0, 1]
    assert kept(row, top_p=0.55, top_k=2) == [0]


def test_min_p_is_relative_to_the_most_likely_token_after_temperature():
    row = np.log([0.6, 0.3, 0.1])
    assert kept(row, min_p=0.4) == [0, 1]
    assert kept(row, min_p=0.4, temperature=0.5) == [0]


def test_min_p_of_one_keeps_only_the_most_likely():
    assert kept([1, 2, 2], min_p=1.0) == [1, 2]


def test_a_top_p_of_nearly_zero_keeps_one_token():
    assert kept([0, 1, 2], top_p=1e-12) == [2]


def test_forbidden_ids_never_survive():
    assert kept([0, -np.inf, 1], top_k=3, top_p=0.9999999) == [0, 2]


def test_repetition_penalty_counts_prompt_and_output_and_looks_at_the_sign():
    params = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert one([3, 2, 0], params, prompt=[0]).token_id == 1
    assert one([3, 2, 0], params, prompt=[2], output=[0]).token_id == 1
    assert one([-1, -1.5, -9], params, prompt=[0]).token_id == 1


def test_frequency_and_presence_penalties_count_the_output_only():
    frequency = SamplingParams(temperature=0, frequency_penalty=1.0)
    presence = SamplingParams(temperature=0, presence_penalty=1.5)
    row = [3, 1.5, 0]
    assert one(row, frequency, prompt=[0, 0, 0]).token_id == 0
    assert one(row, frequency, output=[0]).token_id == 0
    assert one(row, frequency, output=[0, 0]).token_id == 1
    assert one(row, presence, prompt=[0]).token_id == 0
    assert one([2.9, 1.5, 0], presence, output=[0]).token_id == 1
    assert one([3.1, 1.5, 0], presence, output=[0, 0, 0]).token_id == 0


def test_a_state_that_was_appended_to_equals_one_built_from_all_outputs():
    params = SamplingParams(seed=4, frequency_penalty=0.7, repetition_penalty=1.3, min_tokens=8)
    grown = state(params, vocab=64)
    logits = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    output = []
    for _ in range(40):
        built = state(params, output=output, vocab=64)
        (a,), (b,) = sample(logits, [grown]), sample(logits, [built])
        assert a.token_id == b.token_id
        output.append(a.token_id)
        grown.append(a.token_id)
    assert grown.position == 42


def test_min_tokens_forbids_eos_and_stop_ids_until_reached():
    params = SamplingParams(temperature=0, min_tokens=2, stop_token_ids=(1,))
    row = [0, 5, 6, 1]
    assert one(row, params).token_id == 3
    assert one(row, params, output=[3]).token_id == 3
    assert one(row, params, output=[3, 3]).token_id == EOS


def test_min_tokens_leaves_eos_alone_when_eos_is_ignored():
    assert one([0, 0, 9], SamplingParams(temperature=0, min_tokens=2, ignore_eos=True)).token_id == EOS


def test_logit_bias_moves_the_choice_and_ids_outside_the_row_are_ignored():
    assert one([0, 1, 2], SamplingParams(temperature=0, logit_bias={0: 100.0, 7: 1.0})).token_id == 0


def test_allowed_ids_restrict_the_choice_and_beat_min_tokens():
    s = state(SamplingParams(temperature=0, min_tokens=3), vocab=4)
    s.set_allowed(np.array([False, False, True]))
    (choice,) = sample(rows([9, 8, 0, 7]), [s])
    assert choice.token_id == EOS


def test_an_empty_set_is_an_error_of_that_row_alone():
    empty = state(SamplingParams(temperature=0), vocab=4)
    empty.set_allowed(np.zeros(4, dtype=bool))
    bad, good = sample(rows([1, 2, 3, 4], [1, 2, 3, 4]), [empty, state(SamplingParams(temperature=0), vocab=4)])
    assert bad.error is not None
    assert bad.error.code == "invalid_input"
    assert (good.error, good.token_id) == (None, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_that_is_not_finite_is_an_error(value):
    choice = one([0, value, 1], SamplingParams(seed=1))
    assert choice.error is not None
    assert choice.error.code == "internal"


def test_sampling_without_a_seed_is_an_error_not_a_guess():
    assert one([0, 1], SamplingParams()).error is not None


def test_logprobs_come_from_the_raw_logits():
    probabilities = [0.5, 0.25, 0.125, 0.125]
    params = SamplingParams(temperature=0, logprobs=3, logit_bias={3: 50.0})
    found = one(np.log(probabilities), params).logprobs
    assert found.logprob == pytest.approx(np.log(0.125), abs=1e-6)
    assert found.rank == 3
    assert found.top_ids == [0, 1, 2]
    assert found.top_logprobs == pytest.approx(np.log(probabilities[:3]), abs=1e-6)


def test_logprobs_of_zero_give_the_chosen_token_only():
    found = one([0, 1, 0], SamplingParams(temperature=0, logprobs=0)).logprobs
    assert (found.rank, found.top_ids, found.top_logprobs) == (1, [], [])


def test_logits_are_left_unchanged():
    logits = rows([0, 1, 2, 3])
    before = logits.copy()
    sample(logits, [state(SamplingParams(seed=1, min_tokens=2, logit_bias={1: 5.0}, frequency_penalty=1.0), vocab=4)])
    np.testing.assert_array_equal(logits, before)


MIXED = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, logprobs=5),
    SamplingParams(seed=1, logprobs=2),
    SamplingParams(seed=1, top_k=20, top_p=0.9),
    SamplingParams(seed=2, top_p=0.95, temperature=1.7),
    SamplingParams(seed=3, min_p=0.02, repetition_penalty=1.2),
    SamplingParams(seed=3, temperature=0.3, presence_penalty=0.5, min_tokens=4),
]


@pytest.mark.parametrize("num_rows", [2, 7, 16])
def test_a_row_gives_the_same_bits_alone_and_in_a_batch(num_rows):
    seed = 11
    print("seed", seed)
    vocab = 5003
    logits = (np.random.default_rng(seed).standard_normal((num_rows, vocab)) * 4).astype(np.float32)
    states = [state(MIXED[i % len(MIXED)], sequence=i, output=[9] * i, vocab=vocab) for i in range(num_rows)]
    batch = sample(logits, states)
    for i in reversed(range(num_rows)):
        (alone,) = sample(logits[i : i + 1].copy(), [states[i]])
        assert (alone.token_id, alone.logprobs, alone.error) == (
            batch[i].token_id,
            batch[i].logprobs,
            batch[i].error,
        )


def test_a_row_gives_the_same_bits_wherever_it_lies_in_memory():
    row = (np.random.default_rng(5).standard_normal(4099) * 4).astype(np.float32)
    params = SamplingParams(seed=3, top_p=0.97, logprobs=8)
    expected = one(row, params).logprobs
    for offset in range(1, 17):
        room = np.zeros(4099 + 32, dtype=np.float32)
        room[offset : offset + 4099] = row
        assert one(room[offset : offset + 4099], params).logprobs == expected


@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
def test_screening_large_sets_never_changes_the_winner(spread):
    ids = np.arange(3001)
    scaled = (np.random.default_rng(1).standard_normal(3001) * spread).astype(np.float32)
    scaled -= scaled.max()
    for position in range(200):
        full = scaled + noise.gumbel(9, 0, position, ids)
        assert select.with_noise(ids, scaled, seed=9, sequence=0, position=position) == int(full.argmax())


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
def test_top_p_of_a_large_set_equals_that_of_a_full_sort(spread):
    scaled = (np.random.default_rng(2).standard_normal(6000) * spread).astype(np.float32)
    scaled -= scaled.max()
    order = np.argsort(-scaled, kind="stable")
    mass = np.cumsum(np.exp(scaled[order].astype(np.float64)))
    for top_p in (0.01, 0.5, 0.9, 0.999):
        expected = np.sort(order[: np.searchsorted(mass, mass[-1] * top_p) + 1])
        assert np.flatnonzero(filter.top_p_mask(scaled, top_p)).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.6}, {"temperature": 1.8}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.1}]
)
def test_sampled_frequencies_follow_the_filtered_softmax(settings):
    seed = 987654321
    num_draws = 2500
    row = np.log(np.array([0.32, 0.22, 0.16, 0.12, 0.08, 0.06, 0.03, 0.01], dtype=np.float32))
    params = SamplingParams(seed=seed, **settings)
    ids, scaled = filter.survivors(row, params)
    expected = np.zeros(8)
    expected[ids] = np.exp(scaled) / np.exp(scaled).sum() * num_draws
    logits = np.broadcast_to(row, (num_draws, 8))
    found = sample(logits, [state(params, prompt=[0] * i, vocab=8) for i in range(1, num_draws + 1)])
    counts = np.bincount([c.token_id for c in found], minlength=8)
    assert counts[expected == 0].sum() == 0
    used = expected > 0
    chi_square = float((((counts - expected) ** 2)[used] / expected[used]).sum())
    print("seed", seed, "chi-square", chi_square, "degrees", used.sum() - 1)
    limit_at_p_001 = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 7: 24.32}
    assert chi_square < limit_at_p_001[int(used.sum()) - 1]
