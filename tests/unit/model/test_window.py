import pytest

from octavo.engine.model.window import layer_groups
from octavo.errors import InvalidInput


def test_without_windows_all_layers_are_one_full_group():
    (group,) = layer_groups([0, 0, 0], 100)
    assert (group.kind, group.layers, group.window) == ("full", (0, 1, 2), 0)


def test_a_window_that_no_sequence_exceeds_is_none():
    (group,) = layer_groups([100, 100], 100)
    assert (group.kind, group.window) == ("full", 0)
    (group,) = layer_groups([100, 100], 101)
    assert (group.kind, group.window) == ("sliding", 100)


def test_layers_are_grouped_by_window():
    full, sliding = layer_groups([8, 0, 8, 0], 100)
    assert (full.group, full.kind, full.layers) == (0, "full", (1, 3))
    assert (sliding.group, sliding.kind, sliding.layers, sliding.window) == (1, "sliding", (0, 2), 8)


def test_groups_of_unequal_size_are_refused_with_the_length_that_would_do():
    with pytest.raises(InvalidInput, match=r"sliding_window: got groups of \[1, 2\] layers; .*max_model_len up to 8"):
        layer_groups([8, 8, 0], 100)
