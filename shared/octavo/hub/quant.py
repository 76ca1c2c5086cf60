"""Quantizations of GGUF repositories: which file `repo:QUANT` means."""

from __future__ import annotations

import re
from collections.abc import Iterable

from octavo.errors import InvalidInput

_LABEL = re.compile(r"(?:^|[-._/])((?:UD-)?(?:I?Q\d\w*|BF16|F16|F32|FP16|MXFP4\w*|TQ\d_\d))(?=[-._]|$)", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")


def gguf_names(names: Iterable[str]) -> list[str]:
    """The language models among a repository's files: no projectors, no importance matrices."""
    return sorted(
        n for n in names if n.endswith(".gguf") and not n.rsplit("/", 1)[-1].startswith(("mmproj", "imatrix"))
    )


def quant_label(name: str) -> str:
    """The quantization in a file's name, else the name itself."""
    found = _LABEL.findall(_stem(name))
    return found[-1] if found else name


def pick_gguf(repo_id: str, names: list[str], quant: str) -> str:
    """The one file with the quantization `quant` (in any case), or the only file when none is asked for.

    Raises `InvalidInput` that lists what there is.
    """
    if not names:
        raise InvalidInput(f"model: the repository {repo_id} holds no .gguf files", param="model")
    found = [n for n in names if quant_label(n).lower() == quant.lower()] if quant else names
    if len(found) == 1:
        return found[0]
    if quant and found and all(_PART.search(n.removesuffix(".gguf")) for n in found):
        raise InvalidInput(f"model: {repo_id}:{quant} is split into {len(found)} files; join them first", param="model")
    listed = ", ".join(dict.fromkeys(f"{repo_id}:{quant_label(n)}" for n in found or names))
    problem = f"has {len(found) or 'no'} files for {quant!r}" if quant else "needs one of its quantizations"
    raise InvalidInput(f"model: {repo_id} {problem}; there are: {listed}", param="model")


def _stem(name: str) -> str:
    return _PART.sub("", name.removesuffix(".gguf"))
