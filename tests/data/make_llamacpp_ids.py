"""Writes smollm2_llamacpp_ids.json: what llama.cpp's tokenizer makes of the texts in texts.py.

Run it in an environment of its own that has llama-cpp-python 0.3.36:

    python tests/data/make_llamacpp_ids.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from texts import TEXTS

TARGET = Path(__file__).with_name("smollm2_llamacpp_ids.json")


def main(model: str) -> None:
    from llama_cpp import Llama

    llama = Llama(model_path=model, vocab_only=True, verbose=False)
    rows = [llama.tokenize(text.encode(), add_bos=False, special=True) for text in TEXTS]
    TARGET.write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
