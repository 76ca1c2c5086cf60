"""transformers' `generate` in a process of its own, so that none of Octavo's threads touches it.

    python benchmarks/peer.py WEIGHTS CACHE DTYPE

WEIGHTS is a folder that transformers reads, or a .gguf file, which is turned once into a folder under CACHE.  Says
"ready", then answers each line of its input, `{"prompts": [[ids]], "num_out": n}`, with "done": one prompt after the
other, greedy, exactly n tokens each.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GgufConfig


def folder_of(weights: Path, cache: Path) -> Path:
    """A folder that transformers reads with the same weights, in bfloat16."""
    if weights.suffix != ".gguf":
        return weights
    folder = cache / f"{weights.stem}-bf16"
    if not folder.exists():
        print(f"making {folder}", file=sys.stderr, flush=True)
        quantization = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            weights.parent, gguf_file=weights.name, dtype=torch.bfloat16, quantization_config=quantization
        )
        unfinished = cache / f"{folder.name}.{os.getpid()}"
        model.save_pretrained(unfinished)
        unfinished.rename(folder)
    return folder


def generate(model: Any, prompts: list[list[int]], num_out: int) -> None:
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([prompt])
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=num_out, do_sample=False, pad_token_id=0
            )
            assert out.shape[1] == len(prompt) + num_out, out.shape


def main() -> None:
    weights, cache, dtype = sys.argv[1:]
    folder = folder_of(Path(weights), Path(cache))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    model.generation_config.eos_token_id = None  # every answer has its full length
    print("ready", flush=True)
    for line in sys.stdin:
        generate(model, **json.loads(line))
        print("done", flush=True)


if __name__ == "__main__":
    main()
