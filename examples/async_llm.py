"""Stream several answers at once, and cancel one: `python examples/async_llm.py`."""

import argparse
import asyncio

from octavo.llm import AsyncLLM, EngineArgs, SamplingParams


async def stream(llm: AsyncLLM, name: str, prompt: str, max_tokens: int) -> None:
    shown = 0
    async for output in llm.generate(prompt, SamplingParams(temperature=0, max_tokens=max_tokens), request_id=name):
        text = output.outputs[0].text
        print(f"[{name}] {text[shown:]!r}")
        shown = len(text)


async def main() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser(description=__doc__))
    args = parser.parse_args()
    if not getattr(args, "model", None):
        args.model = "smollm2-135m"
    async with AsyncLLM.from_engine_args(EngineArgs.from_cli_args(args)) as llm:
        endless = asyncio.create_task(stream(llm, "endless", "Count: 1, 2, 3,", 1000))
        await asyncio.gather(
            stream(llm, "france", "The capital of France is", 12),
            stream(llm, "water", "Water boils at", 12),
        )
        endless.cancel()
        await asyncio.gather(endless, return_exceptions=True)
        print("cancelled: its blocks are free again")


if __name__ == "__main__":
    asyncio.run(main())
