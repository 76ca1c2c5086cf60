"""`--kv-transfer-config` in vLLM's field names: a pure parser that lists every problem at once.

`{"kv_connector": "shm", "kv_role": "kv_both", "kv_connector_extra_config": {...}}`.  vLLM's class names are accepted as
aliases where a connector of ours does the same.  Fields that steer machinery which Octavo does not have are named in
`ignored`, so that the caller can say so; a value that asks for something else than what happens is a problem.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import Problem, show

ROLES = ("kv_producer", "kv_consumer", "kv_both")
ALIASES = {
    "SharedStorageConnector": "file",
    "ExampleConnector": "file",
    "P2pNcclConnector": "nccl",
    "PyNcclConnector": "nccl",
    "NixlConnector": "nixl",
    "MultiConnector": "multi",
}
EXTRA_ALIASES = {"shared_storage_path": "path"}
IGNORED = ("kv_rank", "kv_parallel_size", "kv_buffer_size", "kv_buffer_device", "kv_port", "engine_id")
KNOWN = (
    "kv_connector",
    "kv_role",
    "kv_connector_extra_config",
    "kv_connector_module_path",
    "kv_ip",
    "kv_load_failure_policy",
    "enable_permute_local_kv",
    *IGNORED,
)
ALLOWED_JSON = 'must be a JSON object such as {"kv_connector":"shm","kv_role":"kv_both"}'


@dataclass(frozen=True)
class KVTransfer:
    """What a worker was told about moving KV.

    `connectors` are names of ours with their settings, in the order in which they are tried.  The directions only
    restrict what the worker offers.  `ignored` are the given fields that mean nothing here.
    """

    connectors: tuple[tuple[str, dict[str, Any]], ...] = ()
    can_produce: bool = True
    can_consume: bool = True
    host: str = ""
    ignored: tuple[str, ...] = field(default=())


def parse_kv_transfer(text: str) -> tuple[KVTransfer | None, list[Problem]]:
    """The settings in `text`, and all problems; None with an empty text or with problems.  Names of connectors are
    checked by `octavo.transfer.connector.registry`, which knows those of other packages."""
    if not text:
        return None, []
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return None, [Problem("kv_transfer_config", show(text), ALLOWED_JSON)]
    problems = list(_problems(given))
    if problems:
        return None, problems
    role = given.get("kv_role") or "kv_both"
    return (
        KVTransfer(
            connectors=tuple(_connectors(given)),
            can_produce=role != "kv_consumer",
            can_consume=role != "kv_producer",
            host=given.get("kv_ip") or "",
            ignored=tuple(name for name in IGNORED if given.get(name) is not None),
        ),
        [],
    )


def _problems(given: dict[str, Any], path: str = "kv_transfer_config") -> Iterator[Problem]:
    for name in given:
        if name not in KNOWN:
            yield Problem(f"{path}.{name}", show(given[name]), f"there is no such field; there are {', '.join(KNOWN)}")
    connector, role = given.get("kv_connector"), given.get("kv_role")
    if not isinstance(connector, str) or not connector:
        yield Problem(f"{path}.kv_connector", show(connector), "must name a connector")
    if role is not None and role not in ROLES:
        yield Problem(f"{path}.kv_role", show(role), f"must be one of {', '.join(ROLES)}")
    ip = given.get("kv_ip")
    if ip is not None and not isinstance(ip, str):
        yield Problem(f"{path}.kv_ip", show(ip), "must be an address")
    if given.get("kv_connector_module_path") is not None:
        allowed = "cannot be used: a package offers its connector by entry point (octavo.peer_connectors)"
        yield Problem(f"{path}.kv_connector_module_path", show(given["kv_connector_module_path"]), allowed)
    if given.get("enable_permute_local_kv"):
        yield Problem(f"{path}.enable_permute_local_kv", "true", "must be off: pages have one layout")
    policy = given.get("kv_load_failure_policy")
    if policy not in (None, "recompute"):
        yield Problem(f"{path}.kv_load_failure_policy", show(policy), "must be recompute")
    yield from _extra_problems(given, path)


def _extra_problems(given: dict[str, Any], path: str) -> Iterator[Problem]:
    extra = given.get("kv_connector_extra_config")
    if extra is not None and not isinstance(extra, dict):
        yield Problem(f"{path}.kv_connector_extra_config", show(extra), "must be a JSON object")
    elif _name(given) == "multi":
        parts = (extra or {}).get("connectors")
        if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
            where = f"{path}.kv_connector_extra_config.connectors"
            yield Problem(where, show(parts), "must be a list of connectors, each with kv_connector")
            return
        for number, part in enumerate(parts):
            where = f"{path}.kv_connector_extra_config.connectors[{number}]"
            if _name(part) == "multi":
                yield Problem(f"{where}.kv_connector", show(part["kv_connector"]), "must be a single connector")
            yield from _problems(part, where)
            if part.get("kv_role", given.get("kv_role")) != given.get("kv_role"):
                yield Problem(f"{where}.kv_role", show(part["kv_role"]), "must be the role of the whole")


def _name(given: dict[str, Any]) -> str:
    """Our name of a connector: an alias, or the lower-case name as given."""
    name = given.get("kv_connector")
    return ALIASES.get(name, name.lower()) if isinstance(name, str) else ""


def _connectors(given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    extra = given.get("kv_connector_extra_config") or {}
    if _name(given) != "multi":
        yield _name(given), {EXTRA_ALIASES.get(key, key): value for key, value in extra.items()}
        return
    for part in extra["connectors"]:
        yield from _connectors(part)
