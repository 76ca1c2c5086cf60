"""Models on disk: a Hugging Face folder, or a GGUF file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.errors import InvalidInput
from octavo.hub.content_id import config_id, content_id
from octavo.hub.files import ModelFiles
from octavo.hub.generation import GENERATION_CONFIG
from octavo.hub.gguf import GGUFFile
from octavo.hub.gguf_config import gguf_config, gguf_eos_ids

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "tokenizer.model")


def folder_files(folder: Path, load_format: str = "auto", *, need_weights: bool = True) -> ModelFiles:
    """The model in a folder: config.json with safetensors, or its one .gguf file.

    `need_weights` False accepts a folder without weights, such as an edge machine has.
    """
    ggufs = sorted(p for p in folder.glob("*.gguf") if not p.name.startswith("mmproj"))
    has_config = (folder / CONFIG).is_file()
    if load_format == "gguf" or (not has_config and ggufs):
        if len(ggufs) != 1:
            found = ", ".join(p.name for p in ggufs) or "none"
            raise InvalidInput(f"model: {folder} must hold one .gguf file; found: {found}; name it", param="model")
        return gguf_files(ggufs[0], load_format)
    if not has_config:
        raise InvalidInput(f"model: {folder} holds neither {CONFIG} nor a .gguf file", param="model")
    has_weights = any(folder.glob("*.safetensors"))
    weights = safetensors_shards(folder) if need_weights or has_weights else ()
    return described(folder, weights)


def described(folder: Path, weights: tuple[Path, ...], *, revision: str = "") -> ModelFiles:
    """`ModelFiles` of a folder whose weight files are known; `revision` (a commit) is its content id if given."""
    config = read_json(folder / CONFIG)
    generation = read_json(folder / GENERATION_CONFIG) if (folder / GENERATION_CONFIG).is_file() else {}
    has_tokenizer = any((folder / name).is_file() for name in TOKENIZER_FILES)
    return ModelFiles(
        name=str(folder),
        format="safetensors",
        config=config,
        weights=weights,
        tokenizer_source=folder if has_tokenizer else None,
        generation_config=generation,
        revision=revision,
        content_id=revision or content_id(weights),
        eos_token_ids=eos_ids(config, generation, folder),
    )


def gguf_files(path: Path, load_format: str = "auto", *, revision: str = "") -> ModelFiles:
    """The model in one GGUF file."""
    if load_format == "safetensors":
        raise InvalidInput(f"load_format: got 'safetensors'; {path.name} is a GGUF file", param="load_format")
    file = GGUFFile.open(path)
    if file.metadata.get("split.count", 1) > 1:
        raise InvalidInput(f"model: {path.name} is one part of a split GGUF model; join the parts first", param="model")
    return ModelFiles(
        name=str(path),
        format="gguf",
        config=gguf_config(file),
        weights=(path,),
        tokenizer_source=path,
        revision=revision,
        content_id=revision or content_id((path,)),
        eos_token_ids=gguf_eos_ids(file),
    )


def without_weights(files: ModelFiles) -> ModelFiles:
    """The same model with its weights left out (dummy ones are made from the configuration and a seed)."""
    return replace(files, format="none", weights=(), content_id=config_id(files.config))


def safetensors_shards(folder: Path) -> tuple[Path, ...]:
    """The shards that the index names, else model.safetensors, else every .safetensors file of the folder."""
    if (folder / INDEX).is_file():
        names = shard_names(read_json(folder / INDEX))
        missing = [n for n in names if not (folder / n).is_file()]
        if missing:
            raise InvalidInput(f"model: {folder} lacks {', '.join(missing)}, which {INDEX} names", param="model")
        return tuple(folder / n for n in names)
    if (folder / SINGLE).is_file():
        return (folder / SINGLE,)
    shards = tuple(p for p in sorted(folder.glob("*.safetensors")) if is_model_shard(p.name))
    if not shards:
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        hint = "; pickled weights are refused, convert them" if pickled else ""
        raise InvalidInput(f"model: {folder} holds no .safetensors weights{hint}", param="model")
    return shards


def is_model_shard(name: str) -> bool:
    """Whether a .safetensors file belongs to the model rather than to an adapter or another layout of it."""
    return "/" not in name and not name.startswith(("adapter", "consolidated"))


def shard_names(index: dict[str, Any]) -> list[str]:
    """The files that a safetensors index names; raises `InvalidInput` for one outside the folder."""
    names = sorted(set(index.get("weight_map", {}).values()))
    bad = [n for n in names if not isinstance(n, str) or Path(n).name != n]
    if bad or not names:
        raise InvalidInput(f"model: {INDEX} names no usable files ({bad})", param="model")
    return names


def eos_ids(config: dict[str, Any], generation: dict[str, Any], folder: Path | None) -> tuple[int, ...]:
    """End ids of generation_config.json, config.json and the tokenizer, in this order, each once."""
    found: list[Any] = []
    for source in (generation, config, config.get("text_config") or {}):
        value = source.get("eos_token_id")
        found += value if isinstance(value, list) else [value]
    if folder is not None:
        found.append(_tokenizer_eos(folder))
    return tuple(dict.fromkeys(i for i in found if isinstance(i, int) and not isinstance(i, bool)))


def _tokenizer_eos(folder: Path) -> int | None:
    """The id of the tokenizer's eos token, read from its JSON files without building it."""
    if not (folder / "tokenizer_config.json").is_file():
        return None
    config = read_json(folder / "tokenizer_config.json")
    token = config.get("eos_token")
    token = token.get("content") if isinstance(token, dict) else token
    for token_id, entry in config.get("added_tokens_decoder", {}).items():
        if token is not None and entry.get("content") == token:
            return int(token_id)
    if token is not None and (folder / "tokenizer.json").is_file():
        for entry in read_json(folder / "tokenizer.json").get("added_tokens", []):
            if entry.get("content") == token:
                return int(entry["id"])
    return None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises `InvalidInput` when it is missing or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"model: cannot read {path}: {error}", param="model") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"model: {path} is not a JSON object", param="model")
    return value
