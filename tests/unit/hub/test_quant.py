from __future__ import annotations

import pytest

from octavo.errors import InvalidInput
from octavo.hub.quant import gguf_names, pick_gguf, quant_label

NAMES = ["m-F16.gguf", "m-IQ4_XS.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "sub/m.Q8_0.gguf"]


@pytest.mark.parametrize(
    ("quant", "expected"),
    [("Q4_K_M", "m-Q4_K_M.gguf"), ("q8_0", "sub/m.Q8_0.gguf"), ("IQ4_XS", "m-IQ4_XS.gguf"), ("f16", "m-F16.gguf")],
)
def test_a_quantization_is_a_whole_part_of_the_name(quant, expected):
    assert pick_gguf("o/r", NAMES, quant) == expected


@pytest.mark.parametrize("quant", ["Q4_K", "Q4", "8_0", ""])
def test_anything_else_lists_what_there_is(quant):
    with pytest.raises(InvalidInput, match="o/r:F16, o/r:IQ4_XS, o/r:Q4_K_M, o/r:Q4_K_S, o/r:Q8_0"):
        pick_gguf("o/r", NAMES, quant)


def test_a_split_file_is_refused():
    parts = [f"m-Q8_0-0000{i}-of-00002.gguf" for i in (1, 2)]
    with pytest.raises(InvalidInput, match="split into 2 files"):
        pick_gguf("o/r", parts, "Q8_0")


def test_the_only_file_needs_no_quantization():
    assert pick_gguf("o/r", ["model.gguf"], "") == "model.gguf"


def test_projectors_are_no_models():
    assert gguf_names(["mmproj-F16.gguf", "x/imatrix.gguf", "m-Q8_0.gguf", "README.md"]) == ["m-Q8_0.gguf"]


def test_a_name_without_a_quantization_is_its_own_label():
    assert quant_label("model.gguf") == "model.gguf"
