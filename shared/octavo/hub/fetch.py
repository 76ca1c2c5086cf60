"""Models from a Hugging Face hub: only the files that are needed, with progress, into the hub's own cache.

`HF_ENDPOINT`, `HF_HUB_OFFLINE`, `HF_TOKEN` and `HF_HUB_CACHE` mean what they mean for huggingface_hub.  The repository
is asked once, with a short time limit; when the hub cannot be reached, what the cache holds is used.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import InvalidInput, ModelNotFound, OctavoError, Unauthorized, Unavailable
from octavo.hub import folder
from octavo.hub.files import ModelFiles, Progress

PROBE_TIMEOUT_S = 5.0
NUM_DOWNLOADS = 4

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


@dataclass(frozen=True)
class Repository:
    """A repository at one commit: file name → size in bytes (0 where unknown)."""

    id: str
    commit: str
    sizes: dict[str, int]
    is_offline: bool = False


def repository_files(
    model: str, revision: str, load_format: str, need_weights: bool, progress: Progress | None
) -> ModelFiles:
    """Fetch `owner/name` or `owner/name:QUANT`; errors name the id, what was tried and how to give a local path."""
    repo_id, _, quant = model.partition(":")
    repository = look_up(repo_id, revision)
    ggufs = [n for n in repository.sizes if _is_gguf(n)]
    has_safetensors = any(n.endswith(".safetensors") for n in repository.sizes)
    if quant or load_format == "gguf" or (ggufs and not has_safetensors):
        name = pick_gguf(repo_id, ggufs, quant)
        path = download(repository, [name], progress)[0]
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


def is_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` forbids asking the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in TRUE


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def look_up(repo_id: str, revision: str) -> Repository:
    """The repository's commit and files: from the hub, or from the cache when the hub is out of reach."""
    if is_offline():
        reason: OctavoError = _unreachable(repo_id, "HF_HUB_OFFLINE is set")
    else:
        from huggingface_hub import HfApi

        try:
            info = HfApi(endpoint=endpoint()).model_info(
                repo_id, revision=revision or None, files_metadata=True, timeout=PROBE_TIMEOUT_S
            )
            sizes = {f.rfilename: f.size or 0 for f in info.siblings or []}
            return Repository(repo_id, info.sha or "", sizes)
        except Exception as error:  # the hub's client raises its HTTP library's own classes
            reason = _explain(repo_id, revision, error)
            if not isinstance(reason, Unavailable):
                raise reason from None
    cached = _cached(repo_id, revision)
    if cached is None:
        raise reason
    return cached


def _explain(repo_id: str, revision: str, error: Exception) -> OctavoError:
    """The typed error for what the hub's client raised."""
    from huggingface_hub import errors

    local = "; a local folder or .gguf file can be given by its path"
    if isinstance(error, errors.GatedRepoError):
        return Unauthorized(f"model: {repo_id} is gated: accept its terms and set HF_TOKEN{local}", param="model")
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelNotFound(f"model: {repo_id} has no revision {revision!r} at {endpoint()}", param="revision")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelNotFound(
            f"model: {repo_id} was not found: it is no demo model, no local path, and {endpoint()} has no such "
            f"repository that the token (HF_TOKEN) may read{local}",
            param="model",
        )
    if isinstance(error, errors.HFValidationError):
        return InvalidInput(f"model: {repo_id!r} is no valid repository id", param="model")
    first_line = (str(error).splitlines() or [""])[0]
    return _unreachable(repo_id, f"{endpoint()} cannot be reached ({type(error).__name__}: {first_line})")


def _unreachable(repo_id: str, why: str) -> Unavailable:
    return Unavailable(
        f"model: {repo_id} is no demo model and no local path, {_cache_dir()} does not hold it, and {why}; "
        "give a local folder or .gguf file by its path",
        param="model",
    )


def _cache_dir() -> Path:
    from huggingface_hub import constants

    return Path(os.environ.get("HF_HUB_CACHE") or constants.HF_HUB_CACHE).expanduser()


def _cached(repo_id: str, revision: str) -> Repository | None:
    """What the cache holds of a repository, or None."""
    base = _cache_dir() / ("models--" + repo_id.replace("/", "--"))
    ref = base / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else revision
    snapshot = base / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        return None
    files = {str(p.relative_to(snapshot)): p.stat().st_size for p in snapshot.rglob("*") if p.is_file()}
    return Repository(repo_id, commit, files, is_offline=True) if files else None


def download(repository: Repository, names: Iterable[str], progress: Progress | None) -> list[Path]:
    """Fetch the named files (those already cached cost nothing) and return their paths, in order."""
    names = list(names)
    meter = _Meter(repository, names, progress)
    with ThreadPoolExecutor(NUM_DOWNLOADS) as pool:
        return list(pool.map(lambda name: _download_one(repository, name, meter), names))


def _download_one(repository: Repository, name: str, meter: _Meter) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(
            repository.id,
            name,
            revision=repository.commit or None,
            endpoint=endpoint(),
            cache_dir=_cache_dir(),
            local_files_only=repository.is_offline,
            tqdm_class=meter.bar_class(),
        )
    except Exception as error:  # as above
        first_line = (str(error).splitlines() or [""])[0]
        raise Unavailable(
            f"model: {name} of {repository.id} could not be fetched from {endpoint()}: "
            f"{type(error).__name__}: {first_line}; what arrived is kept, a new try goes on from there",
            param="model",
        ) from None
    meter.finish(name)
    return Path(path)


class _Meter:
    """Bytes fetched so far, over several downloads at once, as one fraction."""

    def __init__(self, repository: Repository, names: list[str], progress: Progress | None) -> None:
        self._sizes = {n: repository.sizes.get(n, 0) for n in names}
        self._total = max(1, sum(self._sizes.values()))
        self._what = f"fetching {repository.id} ({self._total / 1e6:.0f} MB)"
        self._progress = progress
        self._lock = threading.Lock()
        self._done = 0
        self._in_flight = 0

    def add(self, num_bytes: int) -> None:
        with self._lock:
            self._in_flight += num_bytes
            self._report(self._done + self._in_flight)

    def finish(self, name: str) -> None:
        with self._lock:
            self._done += self._sizes[name]
            self._in_flight = max(0, self._in_flight - self._sizes[name])
            self._report(self._done + self._in_flight)

    def _report(self, num_bytes: int) -> None:
        if self._progress is not None:
            self._progress(self._what, min(1.0, num_bytes / self._total))

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
        where = "the cache" if repository.is_offline else "the repository"
        raise InvalidInput(f"model: {where} has no {lacks} for {repository.id}", param="model")
    return names


def _is_gguf(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return name.endswith(".gguf") and not base.startswith(("mmproj", "imatrix"))


def pick_gguf(repo_id: str, names: list[str], quant: str) -> str:
    """The one file with the quantization `quant` (in any case), or the only file when none is asked for."""
    if not names:
        raise InvalidInput(f"model: the repository {repo_id} holds no .gguf files", param="model")
    pattern = re.compile(rf"(?:^|[-._/]){re.escape(quant)}(?:[-._]|$)", re.IGNORECASE)
    found = names if not quant else [n for n in names if pattern.search(n.removesuffix(".gguf"))]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{repo_id}:{label}" for label in sorted({quant_label(n) for n in found or names}))
    problem = "needs one of its quantizations" if not quant else f"has {len(found)} files for {quant!r}"
    raise InvalidInput(f"model: {repo_id} {problem}; there are: {listed}", param="model")


_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d[\w]*|BF16|F16|F32|FP16|MXFP4\w*|TQ\d_\d))(?=[-._]|$)", re.IGNORECASE
)


def quant_label(name: str) -> str:
    """The quantization in a file's name, else the name itself."""
    found = _QUANT.findall(name.removesuffix(".gguf"))
    return found[-1] if found else name
