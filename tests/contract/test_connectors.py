"""Every registered connector passes the conformance kit."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import InvalidInput
from octavo.testing.connector_kit import PEER_CASES, STORE_CASES
from octavo.transfer.connector.registry import create_peer, create_store, peer_names, store_names


@pytest.mark.parametrize("name", peer_names())
@pytest.mark.parametrize("case", PEER_CASES)
def test_peer_connector(name: str, case: str) -> None:
    PEER_CASES[case](name)


@pytest.mark.parametrize("name", store_names())
@pytest.mark.parametrize("case", STORE_CASES)
def test_store_connector(name: str, case: str, tmp_path: Path) -> None:
    STORE_CASES[case](name, tmp_path)


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match="kv_connector: got 'nope'; must be one of local, shm, tcp"):
        create_peer("nope")
    with pytest.raises(InvalidInput, match="must be one of file"):
        create_store("nope")
    with pytest.raises(InvalidInput, match="kv_connector_extra_config"):
        create_store("file", folder="x")
