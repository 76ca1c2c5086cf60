"""The demo model, SmolLM2-135M-Instruct in Q4_1, against transformers with the dequantized weights in float32."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from octavo.engine.model.loader.gguf import hugging_face_name
from octavo.hub.resolve import resolve_model
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams
from oracle import parity

TEXTS = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "An octavo is a sheet folded into eight leaves, and a book of pages is bound from many of them, each sewn in turn.",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "Water boils at 100 degrees Celsius at sea level; on a mountain it boils at a lower temperature, because the air",
    "Der schnelle braune Fuchs springt über den faulen Hund. 日本語のテキストも少し混ぜておきます。",
)
LENGTHS = (4, 9, 16, 30)


@pytest.fixture(scope="module")
def files():
    return resolve_model("smollm2-135m")


@pytest.fixture(scope="module")
def theirs(files):
    """transformers' Llama, filled by the gguf package's own reader and by its names of parts."""
    reader = gguf.GGUFReader(files.weights[0])
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    heads = {"attn_q": 9, "attn_k": 3}
    state = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in heads:
            num = heads[part]
            order = np.arange(value.shape[0]).reshape(num, -1, 2).transpose(0, 2, 1).reshape(-1)
            value = value[order]
        state[hugging_face_name(tensor.name)] = torch.from_numpy(np.array(value, dtype=np.float32))
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys in ([], ["lm_head.weight"])
    assert missing.unexpected_keys == []
    model.tie_weights()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


@pytest.mark.slow
def test_greedy_tokens_of_the_demo_model_equal_those_of_transformers(theirs):
    params = SamplingParams(temperature=0.0, max_tokens=parity.NUM_TOKENS, ignore_eos=True)
    settings = {"dtype": "float32", "max_model_len": 256, "kv_cache_memory_bytes": 256 << 20, "device": "cpu"}
    with LLM("smollm2-135m", **settings) as llm:
        encoded = [llm.get_tokenizer().encode(text, add_special_tokens=False) for text in TEXTS]
        prompts = [ids[-length:] if length < len(ids) else ids for ids in encoded for length in LENGTHS]
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
        question = [{"role": "user", "content": "What is the capital of France?"}]
        (answer,) = llm.chat(question, params.replace(ignore_eos=False), use_tqdm=False)
    ours = [list(output.outputs[0].token_ids) for output in outputs]
    parity.assert_same_greedy(ours, parity.their_greedy(theirs, prompts), "smollm2")
    assert answer.outputs[0].text == "The capital of France is Paris."


@pytest.mark.slow
def test_logits_of_the_demo_model_equal_those_of_transformers(theirs, files):
    model = parity.read_model(files)
    ids = torch.randint(0, 49152, (40,), generator=torch.Generator().manual_seed(2)).tolist()
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(parity.our_logits(model, ids), expected, rtol=1e-3, atol=2e-3)
