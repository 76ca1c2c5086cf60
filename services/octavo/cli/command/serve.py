"""Serve a model on this machine: the same as `up`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    from octavo.cli.up import run_cluster

    return run_cluster("serve", __doc__ or "", argv, env)
