"""Vectors and laws of the block hash: other languages and later versions must give the same values."""

from __future__ import annotations

import pytest

from octavo.kv.hash import block_hashes, chain_seed, extend_chain


def chain_of(token_ids: list[int], seed: bytes) -> list[bytes]:
    chain: list[bytes] = []
    extend_chain(chain, seed, token_ids)
    return chain


@pytest.mark.parametrize(
    ("namespace", "revision", "adapter", "expected"),
    [
        (b"", "", "", "ab149122b9d0d141d80a8dd73af5e1c7"),
        (b"tenant", "rev", "ad", "feda7c3283b66bda0f3e74f486cb8beb"),
    ],
)
def test_seed_vectors(namespace: bytes, revision: str, adapter: str, expected: str) -> None:
    assert chain_seed(namespace, revision, adapter).hex() == expected


def test_chain_vectors() -> None:
    assert [value.hex() for value in chain_of(list(range(48)), chain_seed(b"", ""))] == [
        "481b6a195276a3e911f28533eb52417f",
        "63632392919a61fb546a15e9ce0d9f38",
        "a536e862e0fea582de3463d4e73dc440",
    ]


def test_parts_of_the_seed_do_not_run_together() -> None:
    assert chain_seed(b"ab", "c") != chain_seed(b"a", "bc")


def test_tokens_beyond_the_last_full_run_do_not_count() -> None:
    seed = chain_seed(b"", "")
    assert chain_of(list(range(31)), seed) == chain_of(list(range(16)), seed)


def test_a_chain_extended_in_parts_equals_one_in_whole() -> None:
    seed, token_ids = chain_seed(b"", ""), list(range(100))
    chain: list[bytes] = []
    for end in (5, 16, 40, 41, 100):
        extend_chain(chain, seed, token_ids[:end])
    assert chain == chain_of(token_ids, seed)


def test_a_value_depends_on_all_tokens_before_it() -> None:
    seed = chain_seed(b"", "")
    assert chain_of([1] * 32, seed)[1] != chain_of([2] * 16 + [1] * 16, seed)[1]


def test_blocks_of_any_size_end_on_the_same_chain() -> None:
    chain = chain_of(list(range(140)), chain_seed(b"", ""))
    assert block_hashes(chain, 64) == block_hashes(chain, 32)[1::2] == block_hashes(chain, 16)[3::4]
