"""A GGUF file by its path, no tokenizer given: all comes from its metadata, or one line says why it cannot."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from gguf_files import write_gguf
from octavo.llm import LLM, SamplingParams
from octavo.testing.tiny_tokenizer import BOS_ID, CHATML, EOS_ID, SPECIALS, merges, vocabulary
from octavo.testing.up_cluster import UpCluster
from oracle.gguf_file import gguf_name, permuted, read_config

pytestmark = pytest.mark.cluster

MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Grüße, 世界 😀"}]
NORMAL, CONTROL = 1, 3
REFUSED_WITHIN_S = 10.0


def metadata_of(config: dict[str, Any]) -> dict[str, Any]:
    """What a converter writes of a tiny llama: sizes, tokenizer, special tokens, chat template."""
    tokens = list(vocabulary())
    return {
        "general.architecture": "llama",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "llama.rope.freq_base": float(config["rope_theta"]),
        "llama.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if token in SPECIALS else NORMAL for token in tokens],
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges()],
        "tokenizer.ggml.bos_token_id": BOS_ID,
        "tokenizer.ggml.eos_token_id": EOS_ID,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def write_model(folder: Path, path: Path, **changes: Any) -> Path:
    """The tiny model of `folder` as a GGUF file; a change to None leaves a key out."""
    config = read_config(folder)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    tensors = {}
    for name, value in load_file(folder / "model.safetensors").items():
        part = name.split(".")[-2]
        tensors[gguf_name(name)] = permuted(value, heads[part]) if part in heads else value
    metadata = metadata_of(config) | changes
    return write_gguf(path, {key: value for key, value in metadata.items() if value is not None}, tensors)


def test_it_answers_as_the_same_model_in_safetensors(tiny_model: Path, tmp_path: Path) -> None:
    path = write_model(tiny_model, tmp_path / "small.gguf")
    params = SamplingParams(temperature=0.0, max_tokens=24)
    llm = LLM(str(tiny_model), dtype="float32", threads=1)
    (text,) = llm.generate("Grüße, 世界 😀", params, use_tqdm=False)
    (chat,) = llm.chat(MESSAGES, params, use_tqdm=False)
    llm.close()
    fields = {"model": str(path), "temperature": 0, "max_tokens": 24, "return_token_ids": True}
    with UpCluster(path, "--dtype=float32", "--threads=1") as cluster:
        completion = cluster.get("/v1/completions", {**fields, "prompt": "Grüße, 世界 😀"})["choices"][0]
        answer = cluster.get("/v1/chat/completions", {**fields, "messages": MESSAGES})
        tokenized = cluster.get("/tokenize", {"prompt": "a<|im_end|>b"})["tokens"]
        # The end token of the metadata ends a request.
        ended = cluster.get("/v1/completions", {**fields, "prompt": "Hi", "logit_bias": {str(EOS_ID): 100}})["choices"][
            0
        ]
    assert (completion["token_ids"], completion["text"]) == (text.outputs[0].token_ids, text.outputs[0].text)
    assert completion["prompt_token_ids"] == text.prompt_token_ids
    assert answer["prompt_token_ids"] == chat.prompt_token_ids
    assert answer["choices"][0]["message"]["content"] == chat.outputs[0].text
    assert tokenized == [ord("a"), EOS_ID, ord("b")]
    assert (ended["token_ids"], ended["finish_reason"], ended["text"]) == ([EOS_ID], "stop", "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"general.architecture": "mamba"}, "mamba"),
        ({"tokenizer.ggml.model": None}, "tokenizer"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer"),
        ({"tokenizer.ggml.model": "rwkv"}, "rwkv"),
        ({"tokenizer.ggml.pre": "nobodys"}, "nobodys"),
        ({"llama.attention.head_count": None}, "head_count"),
    ],
    ids=["architecture", "no tokenizer", "no tokens", "tokenizer kind", "pre-tokenizer", "no heads"],
)
def test_what_it_cannot_read_is_refused_in_one_line(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = write_model(tiny_model, tmp_path / "odd.gguf", **changes)
    started_s = time.monotonic()
    command = [sys.executable, "-m", "octavo.cli", "up", str(path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert time.monotonic() - started_s < REFUSED_WITHIN_S
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith("octavo: error: ")
    assert said in line
    assert "router" not in done.stderr, "a service was started"
