"""An `LLMEngine` over the real scheduler and an executor whose next token is a hash of what it read."""

import pytest

from engine_kit import make_core
from octavo.hub.files import ModelFiles
from octavo.hub.generation import GenerationDefaults
from octavo.llm.frontend import Frontend
from octavo.llm.llm_engine import LLMEngine
from octavo.testing.tiny_model import write_tiny_model
from octavo.testing.tiny_tokenizer import EOS_ID, VOCAB_SIZE
from octavo.text.tokenizer import load_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    folder = write_tiny_model(tmp_path_factory.mktemp("tokenizer") / "tiny")
    return load_tokenizer(ModelFiles("tiny", "safetensors", {}, (), folder))


@pytest.fixture
def make_engine(tokenizer):
    def make(defaults=None, **limits):
        core = make_core(**{"vocab_size": VOCAB_SIZE, "eos_token_ids": frozenset({EOS_ID}), **limits})
        limit = core.scheduler.spec.max_sequence_tokens
        frontend = Frontend(
            tokenizer,
            GenerationDefaults.from_dict(defaults or {}),
            vocab_size=VOCAB_SIZE,
            max_model_len=limit,
            draw_seed=lambda: 5,
        )
        return LLMEngine(core, frontend)

    return make
