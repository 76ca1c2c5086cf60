"""Layer groups from attention windows: layers with the same window share block tables."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import InvalidInput, Problem, show
from octavo.kv.layout import GroupSpec


def layer_groups(windows: Sequence[int], max_len: int) -> tuple[GroupSpec, ...]:
    """The groups of a model whose layer i attends to `windows[i]` tokens, its own included (0: to all).

    A window that no sequence of `max_len` tokens can exceed is no window.  Raises `InvalidInput` where the groups
    would differ in size, since all groups draw equal blocks from one pool.
    """
    effective = [window if 0 < window < max_len else 0 for window in windows]
    kinds = sorted(set(effective))
    groups = tuple(
        GroupSpec(
            group=index,
            kind="sliding" if window else "full",
            layers=tuple(layer for layer, of in enumerate(effective) if of == window),
            window=window,
        )
        for index, window in enumerate(kinds)
    )
    sizes = [len(group.layers) for group in groups]
    if len(set(sizes)) > 1:
        smallest = min(window for window in kinds if window)
        allowed = (
            "groups of layers must have equal sizes to share one pool of blocks; "
            f"with max_model_len up to {smallest} every layer attends to all tokens and one group is enough"
        )
        raise InvalidInput.of([Problem("sliding_window", f"groups of {show(sizes)} layers", allowed)])
    return groups
