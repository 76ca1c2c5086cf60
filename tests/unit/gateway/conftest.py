from pathlib import Path

import pytest

from octavo.hub.files import ModelFiles
from octavo.testing.tiny_tokenizer import write_tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = Path(tmp_path_factory.mktemp("tiny"))
    write_tiny_tokenizer(folder)
    config = {"vocab_size": 512, "max_position_embeddings": 256}
    return ModelFiles("tiny", "none", config, (), folder, eos_token_ids=(511,))
