"""Tokenizers from a Hugging Face folder: tokenizer.json, or vocab.json with merges.txt, and the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from octavo.errors import InvalidInput
from octavo.text.parts import TokenizerParts

SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


def load(folder: Path) -> TokenizerParts:
    """The tokenizer of a folder, or of a tokenizer.json given by its path; `InvalidInput` when there is none."""
    file = folder if folder.is_file() else folder / "tokenizer.json"
    folder = file.parent
    config = _read_json(folder / "tokenizer_config.json")
    backend = _read_backend(file, folder, config)
    backend.no_truncation()
    backend.no_padding()
    _add_missing(backend, folder, config)
    special = _special_tokens(folder, config)
    bos, eos = (_token_id(backend, special.get(name)) for name in ("bos_token", "eos_token"))
    return TokenizerParts(
        backend=backend,
        bos_token_id=bos,
        eos_token_id=eos,
        affixes=_affixes(config, bos, eos),
        chat_template=_chat_template(folder, config),
        special_tokens=special,
    )


def _read_backend(file: Path, folder: Path, config: dict[str, Any]) -> Tokenizer:
    try:
        if file.is_file():
            return Tokenizer.from_file(str(file))
        if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            return _from_vocab(folder, config)
    except Exception as error:  # the tokenizers library raises bare Exception
        raise InvalidInput(f"tokenizer: {folder}: {error}", param="tokenizer") from None
    hint = " (a SentencePiece tokenizer.model is not read)" if (folder / "tokenizer.model").exists() else ""
    raise InvalidInput(f"tokenizer: {folder} has no tokenizer.json{hint}; give --tokenizer", param="tokenizer")


def _from_vocab(folder: Path, config: dict[str, Any]) -> Tokenizer:
    """A GPT-2 style byte-level BPE, as OPT publishes it."""
    backend = Tokenizer(BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space", False)))
    backend.decoder = decoders.ByteLevel()
    names = _special_tokens(folder, config).values()
    backend.add_special_tokens([AddedToken(n, normalized=False) for n in dict.fromkeys(names) if _known(backend, n)])
    return backend


def _known(backend: Tokenizer, token: str) -> bool:
    return backend.token_to_id(token) is not None


def _add_missing(backend: Tokenizer, folder: Path, config: dict[str, Any]) -> None:
    """Tokens that tokenizer_config.json or added_tokens.json name and tokenizer.json lacks, in order of id."""
    wanted: dict[int, AddedToken] = {}
    for content, token_id in _read_json(folder / "added_tokens.json").items():
        wanted[int(token_id)] = AddedToken(content, normalized=False)
    for token_id, entry in config.get("added_tokens_decoder", {}).items():
        flags = {k: bool(entry.get(k, False)) for k in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        wanted[int(token_id)] = AddedToken(entry["content"], **flags)
    for token_id, token in sorted(wanted.items(), key=lambda pair: pair[0]):
        if not _known(backend, token.content) and token_id == backend.get_vocab_size(with_added_tokens=True):
            backend.add_tokens([token])


def _special_tokens(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    merged = _read_json(folder / "special_tokens_map.json") | {k: v for k, v in config.items() if v is not None}
    out = {}
    for name in SPECIAL_NAMES:
        value = merged.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str) and value:
            out[name] = value
    return out


def _token_id(backend: Tokenizer, token: str | None) -> int | None:
    found: int | None = None if token is None else backend.token_to_id(token)
    return found


def _affixes(config: dict[str, Any], bos: int | None, eos: int | None) -> tuple[list[int], list[int]] | None:
    """Explicit `add_bos_token`/`add_eos_token` flags replace the file's post-processor."""
    if "add_bos_token" not in config and "add_eos_token" not in config:
        return None
    prefix = [bos] if config.get("add_bos_token") and bos is not None else []
    suffix = [eos] if config.get("add_eos_token") and eos is not None else []
    return prefix, suffix


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """chat_template.jinja, then chat_template.json, then the configuration; of several named ones the default."""
    if (folder / "chat_template.jinja").is_file():
        return (folder / "chat_template.jinja").read_text(encoding="utf-8")
    found = _read_json(folder / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is no such file, `InvalidInput` when it is broken."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"tokenizer: cannot read {path}: {error}", param="tokenizer") from None
    return value if isinstance(value, dict) else {}
