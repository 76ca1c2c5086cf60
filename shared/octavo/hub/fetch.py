"""Models from a Hugging Face hub: only the files that are needed, with progress, into the hub client's own cache.

`HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_TOKEN` and `HF_HUB_CACHE` mean what they mean for huggingface_hub.  The repository
is asked once, with a short time limit; when the hub cannot be reached, what the cache holds is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from octavo.errors import InvalidInput, ModelNotFound, OctavoError, Unauthorized, Unavailable
from octavo.hub import folder
from octavo.hub.files import ModelFiles, Progress
from octavo.hub.hub_cache import Repository, cache_dir, cached_repository, remember
from octavo.hub.quant import gguf_names, pick_gguf

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 10.0

SIDE_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
)
"""What a model needs beside its weights; those that the repository has are fetched."""

TRUE = {"1", "on", "yes", "true"}
LOCAL_HINT = "a local folder or .gguf file can be given by its path"

log = logging.getLogger(__name__)


def repository_files(
    model: str, revision: str, load_format: str, need_weights: bool, progress: Progress | None
) -> ModelFiles:
    """Fetch `owner/name` or `owner/name:QUANT`; errors name the id, what was tried and how to give a local path."""
    repo_id, _, quant = model.partition(":")
    repository = look_up(repo_id, revision)
    ggufs = gguf_names(repository.sizes)
    has_safetensors = any(n.endswith(".safetensors") for n in repository.sizes)
    if quant or load_format == "gguf" or (ggufs and not has_safetensors and load_format == "auto"):
        path = download(repository, [pick_gguf(repo_id, ggufs, quant)], progress)[0]
        return folder.gguf_files(path, load_format, revision=repository.commit)
    side = [n for n in SIDE_FILES if n in repository.sizes]
    if "config.json" not in side:
        raise InvalidInput(f"model: the repository {repo_id} holds neither config.json nor .gguf files", param="model")
    snapshot = download(repository, side, progress)[0].parent
    weights: tuple[Path, ...] = ()
    if need_weights:
        weights = tuple(download(repository, _weight_names(repository, progress), progress))
    return folder.described(snapshot, weights, revision=repository.commit)


def tokenizer_folder(repo_id: str, progress: Progress | None) -> Path:
    """The folder with a repository's tokenizer files."""
    repository = look_up(repo_id, "")
    names = [n for n in SIDE_FILES if n in repository.sizes]
    if not {"tokenizer.json", "vocab.json"} & set(names):
        raise InvalidInput(f"tokenizer: the repository {repo_id} has no tokenizer.json", param="tokenizer")
    return download(repository, names, progress)[0].parent


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def look_up(repo_id: str, revision: str) -> Repository:
    """The repository's commit and files: from the hub, or from the cache when the hub is out of reach."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in TRUE:
        reason: OctavoError = _unreachable(repo_id, "HF_HUB_OFFLINE is set")
    else:
        from huggingface_hub import HfApi

        limits: Any = (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S, CONNECT_TIMEOUT_S)
        try:
            info = HfApi(endpoint=endpoint()).model_info(
                repo_id, revision=revision or None, files_metadata=True, timeout=limits
            )
            found = Repository(repo_id, info.sha or "", {f.rfilename: f.size or 0 for f in info.siblings or []})
        except Exception as error:  # the hub's client raises its HTTP library's own classes
            reason = _explain(repo_id, revision, error)
            if not isinstance(reason, Unavailable):
                raise reason from None
        else:
            remember(found, revision)
            return found
    cached = cached_repository(repo_id, revision)
    if cached is None:
        raise reason
    log.warning(
        "using the cached copy of %s at commit %s: the hub was not asked or did not answer", repo_id, cached.commit
    )
    return cached


def _explain(repo_id: str, revision: str, error: Exception) -> OctavoError:
    """The typed error for what the hub's client raised."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return Unauthorized(f"model: {repo_id} is gated: accept its terms, set HF_TOKEN; {LOCAL_HINT}", param="model")
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelNotFound(f"model: {repo_id} has no revision {revision!r} at {endpoint()}", param="revision")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(
            f"model: {repo_id} was not found: it is no demo model, no local path, and {endpoint()} has no such "
            f"repository that the token (HF_TOKEN) may read; {LOCAL_HINT}",
            param="model",
        )
    if isinstance(error, errors.HFValidationError):
        return InvalidInput(f"model: {repo_id!r} is no valid repository id", param="model")
    return _unreachable(repo_id, f"{endpoint()} cannot be reached ({type(error).__name__}: {_first_line(error)})")


def _unreachable(repo_id: str, why: str) -> Unavailable:
    return Unavailable(
        f"model: {repo_id} is no demo model and no local path, the cache {cache_dir()} does not hold it, and {why}; "
        f"{LOCAL_HINT}",
        param="model",
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def download(repository: Repository, names: Iterable[str], progress: Progress | None) -> list[Path]:
    """Fetch the named files, one after the other, and return their paths in order; cached ones cost nothing.

    A connection that breaks is taken up again where it broke.  Raises `Unavailable` when a file cannot be had.
    """
    names = list(names)
    meter = _Meter(repository, names, progress)
    return [_download_one(repository, name, meter) for name in names]


def _download_one(repository: Repository, name: str, meter: _Meter) -> Path:
    if repository.folder is not None:
        return repository.folder / name
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(
            repository.id,
            name,
            revision=repository.commit or None,
            endpoint=endpoint(),
            cache_dir=cache_dir(),
            tqdm_class=meter.bar_class(),
        )
    except Exception as error:  # as above
        raise Unavailable(
            f"model: {name} of {repository.id} could not be fetched from {endpoint()}: "
            f"{type(error).__name__}: {_first_line(error)}; files that are complete are kept",
            param="model",
        ) from None
    meter.finish(name)
    return Path(path)


class _Meter:
    """Bytes fetched so far, over all files, as one fraction."""

    def __init__(self, repository: Repository, names: list[str], progress: Progress | None) -> None:
        self._sizes = {n: repository.sizes.get(n, 0) for n in names}
        self._total = max(1, sum(self._sizes.values()))
        self._what = f"fetching {repository.id} ({self._total / 1e6:.1f} MB)"
        self._progress = progress
        self._done = 0
        self._current = 0

    def add(self, num_bytes: int) -> None:
        self._current += num_bytes
        self._report()

    def finish(self, name: str) -> None:
        self._done += self._sizes[name]
        self._current = 0
        self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._what, min(1.0, (self._done + self._current) / self._total))

    def bar_class(self) -> Any:
        """A tqdm class for the hub's client that draws nothing and counts here."""
        from tqdm.auto import tqdm

        meter = self

        class Bar(tqdm):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                kwargs.pop("name", None)
                super().__init__(*args, **{**kwargs, "disable": True})

            def update(self, n: float | None = 1) -> bool | None:
                meter.add(int(n or 0))
                return None

        return Bar


def _weight_names(repository: Repository, progress: Progress | None) -> list[str]:
    if folder.INDEX in repository.sizes:
        index = download(repository, [folder.INDEX], progress)[0]
        names = folder.shard_names(folder.read_json(index))
    elif folder.SINGLE in repository.sizes:
        names = [folder.SINGLE]
    else:
        names = sorted(n for n in repository.sizes if n.endswith(".safetensors") and folder.is_model_shard(n))
    missing = [n for n in names if n not in repository.sizes]
    if missing or not names:
        lacks = ", ".join(missing) or "safetensors weights (pickled ones are refused)"
        where = "the repository" if repository.folder is None else "the cache"
        raise InvalidInput(f"model: {where} has no {lacks} for {repository.id}", param="model")
    return names
