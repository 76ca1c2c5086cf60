"""`resolve_model`: what a MODEL argument means, and the files that it stands for.

A MODEL is, in this order: the name of a demo model, a local folder or .gguf file, or the id of a repository on a model
hub (`owner/name`, or `owner/name:QUANT` for repositories of GGUF files).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from octavo.errors import InvalidInput, show
from octavo.hub import demo, fetch, folder
from octavo.hub.files import ModelFiles, Progress
from octavo.hub.generation import read_generation_config

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.-]+)?")

LOAD_FORMATS = ("auto", "safetensors", "gguf", "dummy")


def resolve_model(
    model: str,
    *,
    tokenizer: str = "",
    revision: str = "",
    generation_config: str = "auto",
    load_format: str = "auto",
    need_weights: bool = True,
    progress: Progress | None = None,
) -> ModelFiles:
    """Find, and fetch where needed, the files of `model`.

    `tokenizer` (a folder, a tokenizer.json, a .gguf file or a repository id) replaces the model's own.
    `generation_config` is `auto` (the model's own), `none`, or a folder.  `need_weights` False leaves out weights that
    are not on disk yet, for processes that never load them.  `name` of the result is `model` as given.  Raises
    `InvalidInput` or `ModelNotFound` with what was tried, and `Unavailable` when a hub cannot be reached.
    """
    if not model.strip():
        raise InvalidInput("model: got ''; give a demo name, a local path or a Hugging Face id", param="model")
    if load_format not in LOAD_FORMATS:
        allowed = ", ".join(LOAD_FORMATS)
        raise InvalidInput(f"load_format: got {show(load_format)}; must be one of {allowed}", param="load_format")
    files = _find(model, revision, load_format, need_weights and load_format != "dummy", progress)
    files = replace(files, name=model)
    if load_format == "dummy":
        files = folder.without_weights(files)
    if tokenizer:
        files = replace(files, tokenizer_source=_tokenizer_source(tokenizer, revision, progress))
    if generation_config != "auto":
        files = replace(files, generation_config=read_generation_config(generation_config))
    return files


def _find(model: str, revision: str, load_format: str, need_weights: bool, progress: Progress | None) -> ModelFiles:
    if model in demo.DEMO_MODELS:
        return folder.gguf_files(demo.fetch_demo(model, progress), load_format)
    path = Path(model).expanduser()
    if path.is_dir():
        return folder.folder_files(path, load_format, need_weights=need_weights)
    if path.is_file():
        if path.suffix != ".gguf":
            raise InvalidInput(
                f"model: {model} is a file but not a .gguf one; give a folder, a .gguf file or an id", param="model"
            )
        return folder.gguf_files(path, load_format)
    if _looks_like_path(model):
        raise InvalidInput(f"model: there is no file or folder {model}", param="model")
    if not REPOSITORY.fullmatch(model):
        raise InvalidInput(
            f"model: got {show(model)}; must be a demo name ({', '.join(demo.DEMO_MODELS)}), a local folder, "
            "a .gguf file, or a Hugging Face id",
            param="model",
        )
    return fetch.repository_files(model, revision, load_format, need_weights, progress)


def _looks_like_path(model: str) -> bool:
    is_file_name = model.endswith(".gguf") and ":" not in model
    return model.startswith(("/", "./", "../", "~")) or is_file_name or model.count("/") > 1


def _tokenizer_source(tokenizer: str, revision: str, progress: Progress | None) -> Path:
    if tokenizer in demo.DEMO_MODELS:
        return demo.fetch_demo(tokenizer, progress)
    path = Path(tokenizer).expanduser()
    if path.exists():
        return path
    if _looks_like_path(tokenizer) or not REPOSITORY.fullmatch(tokenizer):
        raise InvalidInput(f"tokenizer: there is no file or folder {tokenizer}", param="tokenizer")
    return fetch.tokenizer_folder(tokenizer, progress)
