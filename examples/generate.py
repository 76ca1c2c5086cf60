"""Sample with settings from flags; what is not given comes from the model's generation config.

python examples/generate.py --temperature 0.7 --top-p 0.9 --n 2 --seed 7 "Once upon a time"
"""

import argparse

from octavo.llm import LLM

SAMPLING = {
    "n": int,
    "max_tokens": int,
    "min_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "frequency_penalty": float,
    "presence_penalty": float,
    "seed": int,
    "stop": str,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", default=["Once upon a time"])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--generation-config", default="auto", help="auto, none, or a folder")
    for name, kind in SAMPLING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    args = parser.parse_args()
    given = {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    with LLM(args.model, generation_config=args.generation_config) as llm:
        params = llm.get_default_sampling_params().replace(**given)
        print("settings:", params)
        for output in llm.generate(args.prompts, params):
            for choice in output.outputs:
                print(f"{output.prompt!r} [{choice.index}, {choice.finish_reason}] → {choice.text!r}")


if __name__ == "__main__":
    main()
