"""What `octavo models` shows: the demo models, and the models in the caches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octavo.hub.demo import DEMO_MODELS, DemoModel
from octavo.hub.files import Progress
from octavo.hub.hub_cache import Repository, cached_repositories
from octavo.hub.quant import gguf_names, quant_label
from octavo.hub.resolve import resolve_model


@dataclass(frozen=True)
class ModelEntry:
    """One model: `name` works as MODEL; `size` in bytes; `path` None while it is not on this machine.

    `source` is `demo` or `hub`, `format` `gguf` or `safetensors`.
    """

    name: str
    source: str
    format: str
    size: int
    path: Path | None
    description: str = ""


def list_models() -> list[ModelEntry]:
    """Demo models first, then what the hub's cache holds; asks no server."""
    entries = [_demo_entry(model) for model in DEMO_MODELS.values()]
    for repository in cached_repositories():
        entries += _hub_entries(repository)
    return entries


def fetch_model(name: str, progress: Progress | None = None, *, revision: str = "") -> Path:
    """Bring a model to this machine; returns its .gguf file or its folder.  Raises as `resolve_model` does."""
    files = resolve_model(name, revision=revision, progress=progress)
    return files.weights[0] if files.format == "gguf" else files.weights[0].parent


def _demo_entry(model: DemoModel) -> ModelEntry:
    path = model.path if model.is_fetched else None
    return ModelEntry(model.name, "demo", "gguf", model.size, path, model.description)


def _hub_entries(repository: Repository) -> list[ModelEntry]:
    folder = repository.folder
    if folder is None:
        return []
    commit = f"commit {repository.commit[:12]}"
    entries = [
        ModelEntry(f"{repository.id}:{quant_label(n)}", "hub", "gguf", repository.sizes[n], folder / n, commit)
        for n in gguf_names(repository.sizes)
    ]
    num_bytes = sum(size for n, size in repository.sizes.items() if n.endswith(".safetensors"))
    if num_bytes:
        entries.append(ModelEntry(repository.id, "hub", "safetensors", num_bytes, folder, commit))
    return entries
