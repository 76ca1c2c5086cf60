"""`incompatibilities`: why two workers cannot move KV between them.  Pure; used at hello and by the router."""

from __future__ import annotations

from octavo.transfer.message import Terms


def incompatibilities(mine: Terms, theirs: Terms) -> list[str]:
    """Every reason, empty when pages may move.  Block size, shards and connectors may differ."""
    out = []
    if mine.content_id != theirs.content_id:
        out.append(f"content_id: {theirs.content_id} there, {mine.content_id} here; weights must be the same")
    if mine.protocol_max < theirs.protocol_min or theirs.protocol_max < mine.protocol_min:
        out.append(
            f"protocol: {theirs.protocol_min} to {theirs.protocol_max} there, "
            f"{mine.protocol_min} to {mine.protocol_max} here; one version must be common"
        )
    a, b = mine.layout, theirs.layout
    for name in ("dtype", "num_kv_heads", "head_dim"):
        if getattr(a, name) != getattr(b, name):
            out.append(f"layout.{name}: {getattr(b, name)} there, {getattr(a, name)} here; must be equal")
    if a.groups != b.groups:
        out.append("layout.groups: the groups of layers differ; must be equal")
    missing = sorted(set(mine.algorithms) ^ set(theirs.algorithms))
    if missing:
        out.append(f"algorithms: {', '.join(missing)} on one side only; must be equal")
    return out
