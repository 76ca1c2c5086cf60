"""The noise algorithm: known answers, independence of the ids asked for, and its logarithm."""

import numpy as np
import pytest

from octavo.engine.sampling import fixed_log, noise

RANDOM123 = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

VECTORS = {
    (0, 0, 0, 0): "-0x1.15e4da84ad5a6p-1",
    (1, 0, 5, 49151): "-0x1.9d458ff95e5abp-1",
    (2**64 - 1, 3, 8191, 17): "0x1.1c99747a02ebfp-1",
    (0x0123456789ABCDEF, 1, 100, 1000): "-0x1.fff25ce84926dp-3",
}


@pytest.mark.parametrize(("counter", "key", "expected"), RANDOM123)
def test_philox_gives_the_published_known_answers(counter, key, expected):
    out = noise.philox(tuple(np.array([c], dtype=np.uint64) for c in counter), key)
    assert tuple(int(word[0]) for word in out) == expected


@pytest.mark.parametrize(("place", "expected"), VECTORS.items())
def test_gumbel_gives_the_vectors_of_this_version(place, expected):
    seed, sequence, position, token_id = place
    value = noise.gumbel(seed, sequence, position, np.array([token_id]))
    assert float(value[0]).hex() == expected


def test_noise_of_an_id_does_not_depend_on_the_other_ids():
    full = noise.gumbel(7, 1, 9, np.arange(1003))
    for ids in (np.array([5]), np.array([0, 7, 1002]), np.arange(0, 1003, 3), np.arange(900, 1003)):
        np.testing.assert_array_equal(noise.gumbel(7, 1, 9, ids), full[ids])


@pytest.mark.parametrize("change", [(8, 1, 9), (7 + 2**32, 1, 9), (7, 2, 9), (7, 1, 10)])
def test_seed_sequence_and_position_each_change_the_noise(change):
    ids = np.arange(64)
    assert not np.any(noise.gumbel(*change, ids) == noise.gumbel(7, 1, 9, ids))


def test_uniforms_stay_inside_zero_and_one():
    u = noise.uniform(np.array([0, 2**32 - 1], dtype=np.uint64))
    assert u.tolist() == [2.0**-33, 1 - 2.0**-33]
    assert np.isfinite(noise.gumbel_of(u)).all()


def test_gumbel_has_the_mean_and_variance_of_its_distribution():
    seed = 20240229
    sample = noise.gumbel(seed, 0, 0, np.arange(200_000))
    print("seed", seed, sample.mean(), sample.var())
    assert abs(sample.mean() - 0.5772156649) < 0.015
    assert abs(sample.var() - np.pi**2 / 6) < 0.04


def test_log_is_right_over_its_whole_range():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.random(10_000), 1 - rng.random(1000) * 1e-9, np.exp(rng.uniform(-700, 700, 10_000))])
    np.testing.assert_allclose(fixed_log.log(x), np.log(x), rtol=1e-15, atol=0)


def test_log_of_one_number_takes_a_subnormal_as_the_smallest_normal():
    assert fixed_log.log_scalar(5e-324) == fixed_log.log_scalar(2.2250738585072014e-308)
