"""Compare a model of ours with transformers: seeded tiny models, logits of a whole prompt, greedy tokens."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from octavo.engine.model.base import CausalLM
from octavo.engine.model.loader import load
from octavo.engine.model.registry import create_model
from octavo.hub.files import ModelFiles

NUM_TOKENS = 64
TIE_GAP = 1e-3
VOCAB_SIZE = 512


class OneRank:
    """A Comm of one rank."""

    rank, size = 0, 1

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class DenseAttention:
    """Attention over a dense cache of one sequence, in the plainest torch."""

    def __init__(self, model: CausalLM) -> None:
        self.windows = {layer: group.window for group in model.groups for layer in group.layers}
        self.cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if layer in self.cache:
            old_k, old_v = self.cache[layer]
            k, v = torch.cat((old_k, k)), torch.cat((old_v, v))
        self.cache[layer] = (k, v)
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        distance = torch.arange(len(k))[-len(q) :, None] - torch.arange(len(k))[None, :]
        hidden = distance < 0
        if self.windows[layer]:
            hidden |= distance >= self.windows[layer]
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def make_theirs(config: PretrainedConfig, seed: int = 0) -> torch.nn.Module:
    """A transformers model whose every parameter is random, norms and biases included, so that none goes untested."""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(0.1 * noise + (1.0 if name.endswith("weight") else 0.0))
            elif "embed" in name or parameter.dim() == 1:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(noise * 1.5 / parameter.shape[1] ** 0.5)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def read_theirs(folder: Path) -> torch.nn.Module:
    """The transformers model of a folder, in float32, that generates past its end of text."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def read_ours(folder: Path, **settings: object) -> CausalLM:
    """Our model of a safetensors folder, in float32."""
    config = json.loads((folder / "config.json").read_text())
    paths = tuple(sorted(folder.glob("*.safetensors")))
    return read_model(ModelFiles("test", "safetensors", config, paths, None), **settings)


def read_model(files: ModelFiles, **settings: object) -> CausalLM:
    model = create_model(files.config, torch.float32, "cpu", OneRank(), **settings)
    load(model, files)
    return model


def prompts(lengths: tuple[int, ...], num_each: int, seed: int = 1) -> list[list[int]]:
    """Seeded token ids, `num_each` prompts of every length."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths for _ in range(num_each)]


@torch.inference_mode()
def our_logits(model: CausalLM, token_ids: list[int], chunk: int = 0) -> torch.Tensor:
    """[num_tokens, vocab] of a prompt, computed whole or in chunks."""
    attention = DenseAttention(model)
    out = []
    for start in range(0, len(token_ids), chunk or len(token_ids)):
        ids = token_ids[start : start + (chunk or len(token_ids))]
        positions = torch.arange(start, start + len(ids))
        out.append(model.logits(model.forward(torch.tensor(ids), positions, attention, lambda: None)))
    return torch.cat(out)


@torch.inference_mode()
def our_greedy(model: CausalLM, prompt: list[int], num_tokens: int = NUM_TOKENS) -> list[int]:
    attention = DenseAttention(model)
    ids, start, out = list(prompt), 0, []
    for _ in range(num_tokens):
        positions = torch.arange(start, start + len(ids))
        hidden = model.forward(torch.tensor(ids), positions, attention, lambda: None)
        out.append(int(model.logits(hidden[-1:]).argmax()))
        start, ids = start + len(ids), out[-1:]
    return out


@torch.inference_mode()
def their_greedy(
    model: torch.nn.Module, all_prompts: list[list[int]], num_tokens: int = NUM_TOKENS
) -> list[tuple[list[int], list[float]]]:
    """Per prompt the tokens of transformers' `generate`, and the gap between its two best logits at each."""
    out: dict[int, tuple[list[int], list[float]]] = {}
    for length in sorted({len(p) for p in all_prompts}):
        rows = [i for i, p in enumerate(all_prompts) if len(p) == length]
        ids = torch.tensor([all_prompts[i] for i in rows])
        result = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = torch.stack(result.logits, 1).topk(2, -1).values
        gaps = best[..., 0] - best[..., 1]
        for row, index in enumerate(rows):
            out[index] = (result.sequences[row, length:].tolist(), gaps[row].tolist())
    return [out[i] for i in range(len(all_prompts))]


def assert_same_greedy(ours: list[list[int]], theirs: list[tuple[list[int], list[float]]], label: str) -> None:
    """Equal tokens; a first difference only where transformers' own two best are within `TIE_GAP`, and printed."""
    assert len(ours) == len(theirs)
    for index, (mine, (other, gaps)) in enumerate(zip(ours, theirs, strict=True)):
        assert len(mine) == len(other)
        at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b), None)
        if at is not None:
            print(f"{label}: prompt {index} differs first at token {at}, where the gap is {gaps[at]:.2e}")
            assert gaps[at] < TIE_GAP, f"{label}: prompt {index}, token {at}: {mine[at]} instead of {other[at]}"


def save(model: torch.nn.Module, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def config_of(kind: str, **settings: object) -> PretrainedConfig:
    return AutoConfig.for_model(kind, **settings)
