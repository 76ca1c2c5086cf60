"""Start gateway, router and workers on this machine and watch over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    from octavo.cli.up import run_cluster

    return run_cluster("up", __doc__ or "", argv, env)
