"""The selector: attention backends by name, in the order in which a platform prefers them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from octavo.kernels.attention import AttentionBackend, AttentionSpec

AUTO = "auto"


class Entry(NamedTuple):
    """A backend that may be chosen: its name, the platforms that prefer it in this order, and where it is defined."""

    name: str
    platforms: tuple[str, ...]
    load: Callable[[], type[AttentionBackend]]


class BackendUnavailable(ValueError):
    """No backend can run the spec, or the named one cannot; the message gives every reason."""


def _lazy(module: str, attribute: str) -> Callable[[], type[AttentionBackend]]:
    return lambda: getattr(import_module(module), attribute)


_ENTRIES: list[Entry] = [
    Entry("triton", ("cuda", "rocm"), _lazy("octavo.kernels.triton.attention", "TritonAttention")),
    Entry("cpu", ("cpu",), _lazy("octavo.kernels.cpu.native_attention", "CpuAttention")),
    Entry("torch_cpu", ("cpu",), _lazy("octavo.kernels.cpu.attention", "TorchCpuAttention")),
    Entry(
        "reference",
        ("cuda", "rocm", "cpu"),
        _lazy("octavo.kernels.reference.attention", "ReferenceAttention"),
    ),
]


def register(entry: Entry) -> None:
    """Add a backend after those that its platforms already have; a name can be taken once."""
    if entry.name in names():
        raise ValueError(f"attention backend {entry.name!r} is registered already")
    _ENTRIES.append(entry)


def names() -> tuple[str, ...]:
    """The names that `select` takes, besides `auto`."""
    return tuple(e.name for e in _ENTRIES)


def select(name: str, spec: AttentionSpec, platform: str = "") -> type[AttentionBackend]:
    """The backend class for `spec`: the named one, or with `auto` the first of the platform's order without reasons.

    `platform` is `cuda`, `rocm` or `cpu`; empty means the type of `spec.device`.  Raises `BackendUnavailable` with the
    reasons of every backend that was asked.
    """
    platform = platform or spec.device.split(":", 1)[0]
    if name != AUTO and name not in names():
        raise BackendUnavailable(f"attention backend {name!r} does not exist; there are: {AUTO}, {', '.join(names())}")
    asked = [e for e in _ENTRIES if (platform in e.platforms if name == AUTO else e.name == name)]
    refusals = []
    for entry in asked:
        backend = entry.load()
        reasons = list(backend.validate(spec))
        if spec.is_deterministic and not backend.is_batch_invariant:
            reasons.append("its rows depend on the batch, and deterministic mode is on")
        if not reasons:
            return backend
        refusals.append(f"{entry.name}: {', '.join(reasons)}")
    raise BackendUnavailable(
        f"no attention backend can run on {platform}: {'; '.join(refusals) or 'none is registered'}"
    )
