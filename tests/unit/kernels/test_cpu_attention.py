"""The CPU backends: close to the reference, and every row's bits independent of what is beside it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from octavo.kernels.attention import AttentionBackend, AttentionSpec
from octavo.kernels.cpu import native
from octavo.kernels.cpu.attention import TorchCpuAttention
from octavo.kernels.cpu.native_attention import CpuAttention
from octavo.kernels.reference.attention import ReferenceAttention
from octavo.kernels.self_check import make_batch

SPEC = AttentionSpec(
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    block_size=16,
    dtype=torch.float32,
    kv_dtype=torch.float32,
    device="cpu",
    scale=0.25,
)
SPECS = [
    SPEC,
    replace(SPEC, window=20),
    replace(SPEC, window=300, num_heads=2),
    replace(SPEC, dtype=torch.bfloat16, kv_dtype=torch.bfloat16, head_dim=32, scale=0.3),
]


Backend = type[AttentionBackend]


@pytest.fixture(params=[TorchCpuAttention, CpuAttention], ids=lambda backend: backend.name)
def backend_class(request: pytest.FixtureRequest) -> Backend:
    if request.param is CpuAttention and native.library() is None:
        pytest.skip("no C++ compiler here")
    return request.param


class World:
    """Seeded tokens of some sequences, and pools to compute them in."""

    def __init__(self, spec: AttentionSpec, lengths: list[int], seed: int = 0) -> None:
        self.spec, self.lengths = spec, lengths
        generator = torch.Generator().manual_seed(seed)

        def tokens(num_heads: int) -> list[torch.Tensor]:
            return [torch.randn(n, num_heads, spec.head_dim, generator=generator).to(spec.dtype) for n in lengths]

        self.q, self.k, self.v = tokens(spec.num_heads), tokens(spec.num_kv_heads), tokens(spec.num_kv_heads)
        per_seq = [-(-n // spec.block_size) for n in lengths]
        ids = list(range(sum(per_seq) + 3))
        random.Random(seed).shuffle(ids)
        self.tables = [[ids.pop() for _ in range(n)] for n in per_seq]
        self.num_blocks = sum(per_seq) + 3

    def pool(self) -> torch.Tensor:
        """Two layers' blocks; the tests use the second one's strided view."""
        s = self.spec
        return torch.zeros(self.num_blocks, 2, 2, s.num_kv_heads, s.block_size, s.head_dim, dtype=s.kv_dtype)[:, 1]

    def step(self, backend: AttentionBackend, kv: torch.Tensor, work: list[tuple[int, int, int]]) -> list[torch.Tensor]:
        """Compute (sequence, start, end) pieces in one step."""
        tables = [self.tables[s] for s, _, _ in work]
        backend.plan(make_batch(tables, [e - b for _, b, e in work], [e for _, _, e in work], self.spec.block_size))
        q, k, v = (torch.cat([x[s][b:e] for s, b, e in work]) for x in (self.q, self.k, self.v))
        out = torch.full_like(q, float("nan"))
        backend.run(q, k, v, kv, out)
        return list(out.split([e - b for _, b, e in work]))

    def whole(self, backend_class: Backend) -> list[torch.Tensor]:
        """Each sequence in one prefill of its own."""
        return [self.step(backend_class(self.spec), self.pool(), [(s, 0, n)])[0] for s, n in enumerate(self.lengths)]


@pytest.mark.parametrize("spec", SPECS, ids=["float32", "window", "wide-window", "bfloat16"])
def test_prefill_is_close_to_the_reference(backend_class: Backend, spec: AttentionSpec) -> None:
    world = World(spec, [1, 70, 600])
    tolerance = 1e-5 if spec.dtype == torch.float32 else 1e-2
    for got, want in zip(world.whole(backend_class), world.whole(ReferenceAttention), strict=True):
        torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("spec", SPECS, ids=["float32", "window", "wide-window", "bfloat16"])
def test_any_cut_of_a_prefill_gives_the_same_bits(backend_class: Backend, spec: AttentionSpec) -> None:
    world = World(spec, [70])
    (want,) = world.whole(backend_class)
    for cut in range(1, 70):
        backend, kv = backend_class(spec), world.pool()
        got = [world.step(backend, kv, [(0, 0, cut)])[0], world.step(backend, kv, [(0, cut, 70)])[0]]
        assert torch.equal(torch.cat(got), want), f"cut at {cut}"


@pytest.mark.parametrize("spec", SPECS, ids=["float32", "window", "wide-window", "bfloat16"])
def test_decode_gives_the_bits_of_prefill(backend_class: Backend, spec: AttentionSpec) -> None:
    world = World(spec, [600])
    (want,) = world.whole(backend_class)
    backend, kv = backend_class(spec), world.pool()
    world.step(backend, kv, [(0, 0, 500)])
    for at in range(500, 600, 7):
        end = min(600, at + 7)
        (got,) = world.step(backend, kv, [(0, at, end)])
        (alone,) = world.step(backend, kv, [(0, at, at + 1)])
        assert torch.equal(got, want[at:end])
        assert torch.equal(alone, want[at : at + 1])


@pytest.mark.parametrize("spec", SPECS, ids=["float32", "window", "wide-window", "bfloat16"])
def test_rows_do_not_depend_on_what_is_beside_them(backend_class: Backend, spec: AttentionSpec) -> None:
    lengths = [3, 17, 64, 65, 130, 255, 256, 257, 300, 511, 513, 530]
    world = World(spec, lengths)
    want = world.whole(backend_class)
    rng = random.Random(7)
    backend, kv = backend_class(spec), world.pool()
    for s, n in enumerate(lengths):
        world.step(backend, kv, [(s, 0, n)])
    for _ in range(12):
        chosen = rng.sample(range(len(lengths)), rng.randint(1, len(lengths)))
        work = []
        for s in chosen:
            end = rng.randint(1, lengths[s])
            work.append((s, end - 1 if rng.random() < 0.6 else rng.randrange(end), end))
        for (s, start, end), got in zip(work, world.step(backend, kv, work), strict=True):
            assert torch.equal(got, want[s][start:end]), f"sequence {s} rows {start} to {end} in {work}"


@pytest.mark.parametrize("head_dim", [64, 96, 128, 256])
@pytest.mark.parametrize("share", [1, 4, 7])
def test_decode_gives_the_bits_of_prefill_for_every_size_of_head(
    backend_class: Backend, head_dim: int, share: int
) -> None:
    spec = replace(SPEC, num_heads=2 * share, head_dim=head_dim, scale=head_dim**-0.5)
    world = World(spec, [50, 270])
    want = world.whole(backend_class)
    backend, kv = backend_class(spec), world.pool()
    world.step(backend, kv, [(0, 0, 49), (1, 0, 269)])
    for got, whole in zip(world.step(backend, kv, [(0, 49, 50), (1, 269, 270)]), want, strict=True):
        assert torch.equal(got, whole[-1:])


@pytest.mark.parametrize("num_seqs", [1, 5, 16, 17, 40])
def test_many_decode_rows_equal_single_ones(backend_class: Backend, num_seqs: int) -> None:
    world = World(SPEC, [250 + s for s in range(num_seqs)])
    backend, kv = backend_class(SPEC), world.pool()
    for s, n in enumerate(world.lengths):
        world.step(backend, kv, [(s, 0, n)])
    together = world.step(backend, kv, [(s, n - 1, n) for s, n in enumerate(world.lengths)])
    for s, n in enumerate(world.lengths):
        (alone,) = world.step(backend, kv, [(s, n - 1, n)])
        assert torch.equal(together[s], alone)


def test_nothing_but_the_steps_slots_is_written(backend_class: Backend) -> None:
    world = World(SPEC, [40])
    kv = world.pool()
    world.step(backend_class(SPEC), kv, [(0, 0, 40)])
    want = world.pool()
    world.step(ReferenceAttention(SPEC), want, [(0, 0, 40)])
    assert torch.equal(kv, want)
    assert not kv._base[:, 0].any(), "the other layer stays as it was"


def test_a_nan_of_one_sequence_stays_there(backend_class: Backend) -> None:
    world = World(SPEC, [40, 30])
    want = world.whole(backend_class)
    world.q[0][39] = world.k[0][39] = world.v[0][39] = float("nan")
    backend, kv = backend_class(SPEC), world.pool()
    poisoned, clean = world.step(backend, kv, [(0, 0, 40), (1, 0, 30)])
    assert poisoned[39].isnan().all()
    assert torch.equal(poisoned[:39], want[0][:39]) or poisoned[:39].isnan().any()
    assert torch.equal(clean, want[1])
    _, clean = world.step(backend, kv, [(0, 39, 40), (1, 29, 30)])
    assert torch.equal(clean, want[1][29:])
