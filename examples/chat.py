"""Talk to a model in this process: `python examples/chat.py`."""

import argparse

from octavo.llm import LLM, SamplingParams

QUESTIONS = ["What is the capital of France?", "And of Italy?"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    args = parser.parse_args()
    with LLM(args.model) as llm:
        messages: list[dict[str, str]] = []
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            (output,) = llm.chat(messages, SamplingParams(temperature=0, max_tokens=48), use_tqdm=False)
            answer = output.outputs[0].text
            messages.append({"role": "assistant", "content": answer})
            print(f"user: {question}\nassistant: {answer} ({output.num_cached_tokens} prompt tokens from the cache)")


if __name__ == "__main__":
    main()
