"""Default sampling settings from a model's generation_config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import InvalidInput, show
from octavo.hub.files import ModelFiles
from octavo.sampling_params import SamplingParams

GENERATION_CONFIG = "generation_config.json"

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Fields of a generation configuration that become defaults.  `do_sample` is not read, as vLLM does not."""


@dataclass(frozen=True)
class GenerationDefaults:
    """What a request that leaves a setting open gets.  `max_new_tokens` caps every request; None: no cap."""

    settings: dict[str, Any] = field(default_factory=dict)
    max_new_tokens: int | None = None

    @classmethod
    def from_files(cls, files: ModelFiles, mode: str = "auto") -> GenerationDefaults:
        """Defaults of a model: `mode` is `auto` (its own file), `none`, or a folder with a generation_config.json."""
        return cls.from_dict(files.generation_config if mode == "auto" else read_generation_config(mode))

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> GenerationDefaults:
        """Defaults of a generation configuration; raises `InvalidInput` for values no request could use."""
        settings = {name: config[name] for name in SAMPLING_FIELDS if config.get(name) is not None}
        for name, value in settings.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _bad(name, value, "must be a number")
        if "top_k" in settings:
            settings["top_k"] = int(settings["top_k"])
        problems = SamplingParams(**settings).problems()
        if problems:
            raise InvalidInput.of(problems)
        cap = config.get("max_new_tokens")
        if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
            raise _bad("max_new_tokens", cap, "must be a positive number")
        return cls(settings, cap)

    def apply(self, explicit: dict[str, object]) -> SamplingParams:
        """Settings of one request: what it gives, then the model's defaults, then those of `SamplingParams`.

        A value of None counts as not given, except for `max_tokens`, where it means "up to the context".
        """
        given = {k: v for k, v in explicit.items() if v is not None or k == "max_tokens"}
        return SamplingParams(**(self.settings | given))

    def cap(self, params: SamplingParams, room: int, *, is_given: bool = True) -> SamplingParams:
        """`params` with the model's cap on output tokens; `room` is what the context holds beside the prompt.

        The cap itself yields to the room, and so does a `max_tokens` that the client has not given (`is_given`): they
        never make a request refusable that the client did not.
        """
        limit = self.max_new_tokens
        if not is_given and params.max_tokens is not None:
            params = params.replace(max_tokens=max(1, min(params.max_tokens, room)))
        if limit is None or (params.max_tokens is not None and params.max_tokens <= limit):
            return params
        return params.replace(max_tokens=max(1, min(limit, room)))


def read_generation_config(mode: str) -> dict[str, Any]:
    """The configuration for `none` (empty) or for a folder (or file) that holds one."""
    if mode == "none":
        return {}
    path = Path(mode).expanduser()
    path = path / GENERATION_CONFIG if path.is_dir() else path
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"generation_config: got {show(mode)}; must be auto, none, or a folder with {GENERATION_CONFIG} ({error})",
            param="generation_config",
        ) from None
    if not isinstance(value, dict):
        raise _bad("generation_config", mode, "the file must hold a JSON object")
    return value


def _bad(name: str, value: object, allowed: str) -> InvalidInput:
    return InvalidInput(f"generation_config: {name}: got {show(value)}; {allowed}", param="generation_config")
