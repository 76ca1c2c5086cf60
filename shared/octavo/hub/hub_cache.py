"""The local cache of the model hub's client: which repositories it holds, at which commits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "models--"


@dataclass(frozen=True)
class Repository:
    """A repository at one commit: file name → size in bytes (0 where unknown).

    `folder` is the snapshot in the cache, for one that was read from there and not from the hub.
    """

    id: str
    commit: str
    sizes: dict[str, int]
    folder: Path | None = None


def cache_dir() -> Path:
    """`HF_HUB_CACHE`, else `hub` under `HF_HOME`, else `~/.cache/huggingface/hub`."""
    given = os.environ.get("HF_HUB_CACHE", "")
    if given:
        return Path(given).expanduser()
    home = os.environ.get("HF_HOME", "")
    if home:
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME", "") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def cached_repository(repo_id: str, revision: str = "") -> Repository | None:
    """What the cache holds of a repository at a revision (branch, tag or commit; default main), or None."""
    base = _base(repo_id)
    ref = base / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else revision
    if not commit or "/" in commit:
        return None
    return _snapshot(repo_id, base / "snapshots" / commit)


def remember(repository: Repository, revision: str = "") -> None:
    """Note which commit a branch or tag stood for, as the hub's client does, so that it is found offline."""
    name = revision or "main"
    if name == repository.commit or not repository.commit:
        return
    ref = _base(repository.id) / "refs" / name
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(repository.commit)


def cached_repositories() -> Iterator[Repository]:
    """Every snapshot in the cache that holds at least one file."""
    for base in sorted(cache_dir().glob(PREFIX + "*")):
        repo_id = base.name.removeprefix(PREFIX).replace("--", "/")
        for folder in sorted((base / "snapshots").glob("*")):
            found = _snapshot(repo_id, folder)
            if found is not None:
                yield found


def _base(repo_id: str) -> Path:
    return cache_dir() / (PREFIX + repo_id.replace("/", "--"))


def _snapshot(repo_id: str, folder: Path) -> Repository | None:
    files = {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    return Repository(repo_id, folder.name, files, folder) if files else None
