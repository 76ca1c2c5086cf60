from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from data.texts import TEXTS
from octavo.errors import InvalidInput
from octavo.hub.files import ModelFiles
from octavo.text.tokenizer import Tokenizer, load_tokenizer
from tiny_tokenizers import BOS, EOS, byte_level_backend

CONFIG = {"bos_token": BOS, "eos_token": {"content": EOS}}


def load(folder) -> Tokenizer:
    return load_tokenizer(ModelFiles("m", "safetensors", {}, (), folder))


def write(folder, backend=None, **files):
    """A tokenizer folder: tokenizer.json from `backend`, and JSON files by their stem."""
    (folder / "tokenizer.json").write_text((backend or byte_level_backend()).to_str())
    for stem, value in ({"tokenizer_config": CONFIG} | files).items():
        (folder / f"{stem}.json").write_text(json.dumps(value))
    return folder


def copy_of(backend) -> Backend:
    return Backend.from_str(backend.to_str())


def with_bos() -> Backend:
    backend = copy_of(byte_level_backend())
    backend.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return backend


def test_special_tokens_are_known(tmp_path):
    tokenizer = load(write(tmp_path))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.special_ids) == (0, 1, {0, 1})
    assert tokenizer.special_tokens == {"bos_token": BOS, "eos_token": EOS}
    assert tokenizer.token_id("<tool>") not in (None, *tokenizer.special_ids)


def test_ids_and_text_are_those_of_the_backend(tmp_path):
    tokenizer, backend = load(write(tmp_path)), byte_level_backend()
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == backend.encode(text).ids
        assert tokenizer.decode(ids) == backend.decode(ids)


def test_the_post_processor_adds_special_tokens(tmp_path):
    tokenizer = load(write(tmp_path, with_bos()))
    assert tokenizer.encode("hi") == [0, *tokenizer.encode("hi", add_special_tokens=False)]


@pytest.mark.parametrize(
    ("flags", "first", "last"),
    [({"add_bos_token": False}, [], []), ({"add_bos_token": True, "add_eos_token": True}, [0], [1])],
)
def test_explicit_flags_replace_the_post_processor(tmp_path, flags, first, last):
    tokenizer = load(write(tmp_path, with_bos(), tokenizer_config=CONFIG | flags))
    assert tokenizer.encode("hi") == [*first, *tokenizer.encode("hi", add_special_tokens=False), *last]


def test_vocabulary_and_merges_without_tokenizer_json(tmp_path):
    backend = byte_level_backend()
    spec = json.loads(backend.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(spec["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in spec["merges"]))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CONFIG | {"add_bos_token": True}))
    tokenizer = load(tmp_path)
    text = f"Grüße 👋 {EOS}"
    assert tokenizer.encode(text) == [0, *backend.encode(text).ids]
    assert tokenizer.special_ids == {0, 1}


def test_tokens_that_only_the_configuration_names_are_added(tmp_path):
    size = byte_level_backend().get_vocab_size()
    added = {str(size): {"content": "<think>", "special": True}, "0": {"content": BOS, "special": True}}
    tokenizer = load(write(tmp_path, tokenizer_config=CONFIG | {"added_tokens_decoder": added}))
    assert tokenizer.encode("<think>") == [size]
    assert size in tokenizer.special_ids


def test_truncation_and_padding_of_the_file_are_off(tmp_path):
    backend = copy_of(byte_level_backend())
    backend.enable_truncation(2)
    backend.enable_padding(length=2)
    tokenizer = load(write(tmp_path, backend))
    assert len(tokenizer.encode("a long enough text")) > 2
    assert tokenizer.encode("") == []


def test_chat_template_sources_in_order(tmp_path):
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    write(tmp_path, tokenizer_config=CONFIG | {"chat_template": named})
    assert load(tmp_path).chat_template == "D"
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "J"}))
    assert load(tmp_path).chat_template == "J"
    (tmp_path / "chat_template.jinja").write_text("F")
    assert load(tmp_path).chat_template == "F"


@pytest.mark.parametrize(
    ("decoder", "pre_tokenizer"),
    [
        (decoders.Metaspace(), pre_tokenizers.Metaspace()),
        (decoders.Metaspace(prepend_scheme="never"), pre_tokenizers.Metaspace(prepend_scheme="never")),
        (
            decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
            pre_tokenizers.Metaspace(prepend_scheme="never"),
        ),
        (
            decoders.Sequence(
                [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
            ),
            pre_tokenizers.Metaspace(),
        ),
        (decoders.WordPiece(cleanup=False), pre_tokenizers.Whitespace()),
    ],
)
def test_every_supported_decoder_gives_the_text_of_the_backend(tmp_path, decoder, pre_tokenizer):
    letters = {c: i for i, c in enumerate("abcdefgh▁", start=3)}
    backend = Backend(models.BPE(vocab={"<unk>": 0, "<0xC3>": 1, "<0xBC>": 2} | letters, merges=[], unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoder
    tokenizer = load(write(tmp_path, backend, tokenizer_config={}))
    for ids in (backend.encode("abc de  f").ids, [3, 1, 2, 4], [11, 3], []):
        assert tokenizer.decode(ids) == backend.decode(ids)


def test_an_unknown_decoder_is_refused(tmp_path):
    backend = copy_of(byte_level_backend())
    backend.decoder = decoders.CTC()
    with pytest.raises(InvalidInput, match=r"decoder \(CTC\) is not supported"):
        load(write(tmp_path, backend))


def test_text_that_is_not_unicode_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="must be valid Unicode") as caught:
        load(write(tmp_path)).encode("broken \ud800")
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no tokenizer.json; give --tokenizer"),
        ({"tokenizer.model": "x"}, "tokenizer.model is not read"),
        ({"tokenizer.json": "{"}, "tokenizer: "),
        ({"tokenizer_config.json": "{"}, "cannot read .*tokenizer_config.json"),
    ],
)
def test_a_folder_without_a_usable_tokenizer(tmp_path, files, said):
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    with pytest.raises(InvalidInput, match=said) as caught:
        load(tmp_path)
    assert caught.value.param == "tokenizer"


def test_a_model_without_a_tokenizer():
    with pytest.raises(InvalidInput, match="m comes without one; give --tokenizer"):
        load(None)


def test_ids_outside_the_vocabulary_are_no_text(tmp_path):
    tokenizer = load(write(tmp_path))
    assert tokenizer.decode([tokenizer.vocab_size + 5, -1]) == ""
    assert tokenizer.piece(tokenizer.vocab_size) == ""


@pytest.mark.parametrize(("more", "is_warned"), [(-1, True), (0, False), (100, False)])
def test_a_tokenizer_with_more_ids_than_the_model_is_warned_of(tmp_path, caplog, more, is_warned):
    size = load(write(tmp_path)).vocab_size
    load_tokenizer(ModelFiles("m", "safetensors", {"vocab_size": size + more}, (), tmp_path))
    assert any("more ids than the model" in r.getMessage() for r in caplog.records) == is_warned
