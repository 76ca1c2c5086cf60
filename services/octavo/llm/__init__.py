"""The Python API: `LLM` (offline batches), `AsyncLLM` (streams), `LLMEngine` (step by step), all in process.

Importing it loads no torch; that happens when an engine is built.
"""

from octavo.engine.protocol import EngineProtocol
from octavo.llm.args import EngineArgs
from octavo.llm.async_llm import AsyncLLM
from octavo.llm.llm import LLM
from octavo.llm.llm_engine import LLMEngine
from octavo.llm.output import CompletionOutput, Logprob, RequestOutput
from octavo.llm.stream import RequestStream
from octavo.sampling_params import SamplingParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "CompletionOutput",
    "EngineArgs",
    "EngineProtocol",
    "LLMEngine",
    "Logprob",
    "RequestOutput",
    "RequestStream",
    "SamplingParams",
]
