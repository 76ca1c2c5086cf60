"""Complete a few prompts in this process: `python examples/basic.py`."""

import argparse

from octavo.llm import LLM, SamplingParams

PROMPTS = [
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    args = parser.parse_args()
    with LLM(args.model) as llm:
        params = SamplingParams(temperature=0, max_tokens=32)
        for output in llm.generate(PROMPTS, params):
            print(f"{output.prompt!r} → {output.outputs[0].text!r}")


if __name__ == "__main__":
    main()
