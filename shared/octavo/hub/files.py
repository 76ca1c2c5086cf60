"""`ModelFiles`: what a MODEL argument resolved to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Progress = Callable[[str, float], None]
"""Called with what is being fetched and the fraction done, 0 to 1; may be called from another thread."""


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk.

    `config` is a Hugging Face `config.json` as a dict; for a GGUF file it is made from the file's metadata in the same
    terms.  `weights` are the safetensors shards or the one .gguf file (empty where only the edge files were asked for).
    `tokenizer_source` is a folder with tokenizer.json, or a .gguf file.  `generation_config` is empty when there is
    none.  `content_id` names the weights: the hub revision, or sha256 over headers, sizes and sampled pages.
    """

    name: str
    format: str
    """`safetensors`, `gguf` or `none` (config only, for dummy weights)."""
    config: dict[str, Any]
    weights: tuple[Path, ...]
    tokenizer_source: Path | None
    generation_config: dict[str, Any] = field(default_factory=dict)
    revision: str = ""
    content_id: str = ""
    eos_token_ids: tuple[int, ...] = ()
