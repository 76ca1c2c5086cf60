"""What `octavo.llm` exports, and that importing it stays light."""

import subprocess
import sys

import octavo.llm


def test_every_public_name_is_there():
    assert set(octavo.llm.__all__) == {
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
    }
    assert all(hasattr(octavo.llm, name) for name in octavo.llm.__all__)


def test_importing_it_loads_no_torch():
    code = "import sys, octavo.llm; print([m for m in ('torch', 'transformers', 'grpc', 'zmq') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
