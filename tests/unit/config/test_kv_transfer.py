"""`--kv-transfer-config`: vLLM's field names, its class names as aliases, and every problem at once."""

from __future__ import annotations

import json

import pytest

from octavo.config.kv_transfer import parse_kv_transfer

MULTI = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "connectors": [
            {"kv_connector": "shm"},
            {"kv_connector": "SharedStorageConnector", "kv_connector_extra_config": {"shared_storage_path": "/kv"}},
        ]
    },
}


def parse(**fields: object):
    return parse_kv_transfer(json.dumps(fields))


def test_nothing_given_is_nothing() -> None:
    assert parse_kv_transfer("") == (None, [])


@pytest.mark.parametrize(
    ("role", "directions"),
    [("kv_producer", (True, False)), ("kv_consumer", (False, True)), ("kv_both", (True, True)), (None, (True, True))],
)
def test_a_role_restricts_directions(role: str | None, directions: tuple[bool, bool]) -> None:
    found, problems = parse(kv_connector="shm", kv_role=role)
    assert problems == []
    assert found is not None
    assert (found.can_produce, found.can_consume) == directions


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("shm", "shm"),
        ("TCP", "tcp"),
        ("NixlConnector", "nixl"),
        ("P2pNcclConnector", "nccl"),
        ("ExampleConnector", "file"),
    ],
)
def test_names_and_aliases(name: str, ours: str) -> None:
    found, _ = parse(kv_connector=name, kv_role="kv_both")
    assert found is not None
    assert found.connectors == ((ours, {}),)


def test_several_connectors_are_a_ladder() -> None:
    found, problems = parse(**MULTI)
    assert problems == []
    assert found is not None
    assert found.connectors == (("shm", {}), ("file", {"path": "/kv"}))


def test_fields_without_meaning_are_named() -> None:
    found, _ = parse(kv_connector="tcp", kv_rank=0, kv_parallel_size=2, kv_port=14579, kv_ip="10.0.0.1")
    assert found is not None
    assert found.ignored == ("kv_rank", "kv_parallel_size", "kv_port")
    assert found.host == "10.0.0.1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "kv_transfer_config.kv_connector: got None; must name a connector"),
        ({"kv_connector": "shm", "kv_role": "x"}, "kv_transfer_config.kv_role: got 'x'; must be one of kv_producer"),
        ({"kv_connector": "shm", "kv_rol": "x"}, "kv_transfer_config.kv_rol: got 'x'; there is no such field"),
        ({"kv_connector": "shm", "kv_ip": 3}, "kv_transfer_config.kv_ip: got 3; must be an address"),
        ({"kv_connector": "shm", "kv_connector_module_path": "m"}, "kv_transfer_config.kv_connector_module_path"),
        ({"kv_connector": "shm", "enable_permute_local_kv": True}, "kv_transfer_config.enable_permute_local_kv"),
        ({"kv_connector": "shm", "kv_load_failure_policy": "fail"}, "kv_transfer_config.kv_load_failure_policy"),
        ({"kv_connector": "shm", "kv_connector_extra_config": []}, "kv_transfer_config.kv_connector_extra_config"),
        ({"kv_connector": "multi"}, "kv_transfer_config.kv_connector_extra_config.connectors: got None"),
        (
            {"kv_connector": "multi", "kv_connector_extra_config": {"connectors": [{"kv_connector": 3}]}},
            "kv_transfer_config.kv_connector_extra_config.connectors[0].kv_connector: got 3",
        ),
    ],
)
def test_a_problem_names_the_field(fields: dict[str, object], message: str) -> None:
    found, (problem,) = parse(**fields)
    assert found is None
    assert str(problem).startswith(message)


@pytest.mark.parametrize("text", ["{", "[]", "3", '"shm"'])
def test_what_is_no_object_is_refused(text: str) -> None:
    found, (problem,) = parse_kv_transfer(text)
    assert found is None
    assert "must be a JSON object" in str(problem)


def test_all_problems_come_at_once() -> None:
    assert len(parse(kv_role="x", kv_ip=3, other=1)[1]) == 4
