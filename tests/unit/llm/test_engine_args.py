"""`EngineArgs`: engine flags as keywords and from a command line."""

import argparse
from pathlib import Path

import pytest

from octavo.errors import InvalidInput
from octavo.llm import EngineArgs


def parse(*argv):
    return EngineArgs.from_cli_args(EngineArgs.add_cli_args(argparse.ArgumentParser()).parse_args(argv))


def test_keywords_are_the_flat_names_of_the_settings():
    args = EngineArgs("m", max_num_seqs=3, block_size=16, enable_prefix_caching=False)
    assert (args.config.scheduler.max_num_seqs, args.config.cache.block_size) == (3, 16)
    assert args.flat()["enable_prefix_caching"] is False


def test_every_problem_is_listed_at_once():
    with pytest.raises(InvalidInput, match=r"max_num_sqs.*max_num_seqs\?.*block_size"):
        EngineArgs("m", max_num_sqs=3, block_size="x")


def test_a_model_is_needed():
    with pytest.raises(InvalidInput, match="model"):
        EngineArgs()


@pytest.mark.parametrize("model", [None, 5, ["m"]])
def test_a_model_of_another_type_is_refused(model):
    with pytest.raises(InvalidInput, match=r"model: got .* must be a demo name"):
        EngineArgs(model)


def test_a_path_is_a_model():
    assert EngineArgs(Path("some/folder")).config.model.model == "some/folder"


@pytest.mark.parametrize("argv", [["m", "--max-num-seqs=3"], ["--model", "m", "--max-num-seqs", "3"]])
def test_command_line_and_keywords_agree(argv):
    assert parse(*argv).flat() == EngineArgs("m", max_num_seqs=3).flat()


def test_switches_and_units_are_read():
    args = parse("m", "--no-enable-prefix-caching", "--kv-cache-memory-bytes=64MiB")
    assert args.config.cache.enable_prefix_caching is False
    assert args.config.cache.kv_cache_memory_bytes == 64 * 2**20


def test_a_bad_flag_value_is_named():
    with pytest.raises(InvalidInput, match="max_num_seqs: got"):
        parse("m", "--max-num-seqs=many")


def test_attributes_of_other_flags_are_left_alone():
    args = EngineArgs.from_cli_args(argparse.Namespace(model="m", max_num_seqs=4, verbose=True))
    assert args.config.scheduler.max_num_seqs == 4


def test_more_threads_than_any_machine_has_are_refused():
    with pytest.raises(InvalidInput, match="threads: got 10000; must be between 0 and 1024"):
        EngineArgs("m", threads=10_000)
