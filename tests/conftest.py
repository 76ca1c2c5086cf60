"""Fixtures that start real processes; each cluster is shared by the tests that harm nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny seeded llama."""
    from octavo.testing.tiny_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def tiny_cluster(tiny_model: Path) -> Iterator:
    """Router, one real worker with the tiny model, and gateway."""
    from octavo.testing.cluster import Cluster

    with Cluster(tiny_model) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def sim_cluster(tiny_model: Path) -> Iterator:
    """Router, one simulated worker (5 ms a step) and gateway."""
    from octavo.testing.cluster import Cluster
    from octavo.testing.sim import SimSpec

    with Cluster(tiny_model, simulated=SimSpec(step_ms=5, vocab_size=512)) as cluster:
        yield cluster
