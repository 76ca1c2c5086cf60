"""Connectors by name: ours, and those of other packages through the entry point groups below.

An entry point of `octavo.peer_connectors` or `octavo.store_connectors` names a class; a new connector joins the
conformance kit (`octavo.testing.connector_kit`) by being registered.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from octavo.errors import InvalidInput, Problem, show
from octavo.transfer.connector.peer import PeerConnector
from octavo.transfer.connector.store import StoreConnector

PEER_GROUP = "octavo.peer_connectors"
STORE_GROUP = "octavo.store_connectors"

_PEERS = {
    "local": "octavo.transfer.connector.local:LocalConnector",
    "shm": "octavo.transfer.connector.shm:ShmConnector",
    "tcp": "octavo.transfer.connector.tcp:TcpConnector",
}
_STORES = {"file": "octavo.transfer.connector.file:FileStore"}


def peer_names() -> tuple[str, ...]:
    """Peer connectors in the order in which a pair tries them."""
    return (*_PEERS, *sorted(e.name for e in entry_points(group=PEER_GROUP) if e.name not in _PEERS))


def store_names() -> tuple[str, ...]:
    return (*_STORES, *sorted(e.name for e in entry_points(group=STORE_GROUP) if e.name not in _STORES))


def create_peer(name: str, **settings: Any) -> PeerConnector:
    """A peer connector; raises `InvalidInput` that names those that exist."""
    cls: type[PeerConnector] = _load(name, _PEERS, PEER_GROUP, peer_names())
    return _build(cls, settings)


def create_store(name: str, **settings: Any) -> StoreConnector:
    """A store; raises `InvalidInput` that names those that exist, or says which setting is wrong."""
    cls: type[StoreConnector] = _load(name, _STORES, STORE_GROUP, store_names())
    return _build(cls, settings)


def _load(name: str, ours: dict[str, str], group: str, names: tuple[str, ...]) -> Any:
    if name in ours:
        module, _, attribute = ours[name].partition(":")
        return getattr(import_module(module), attribute)
    for entry in entry_points(group=group):
        if entry.name == name:
            return entry.load()
    raise InvalidInput.of([Problem("kv_connector", show(name), f"must be one of {', '.join(names)}")])


def _build(cls: Any, settings: dict[str, Any]) -> Any:
    try:
        return cls(**settings)
    except TypeError as error:
        raise InvalidInput.of([Problem("kv_connector_extra_config", show(settings), str(error))]) from None
