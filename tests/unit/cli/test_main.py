"""The `octavo` command line without services: commands, version, errors, exit codes."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from octavo.cli import main as cli
from octavo.errors import InvalidInput, Unavailable
from octavo.version import __version__


def test_version_imports_next_to_nothing() -> None:
    code = "import sys; from octavo.cli.main import main; main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    version, modules = done.stdout.splitlines()
    assert version == f"octavo {__version__}"
    assert not {"torch", "grpc", "rich", "msgspec", "argparse", "asyncio", "numpy"} & set(modules.split())


def test_usage_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"], {}) == 0
    text = capsys.readouterr().out
    for name in ("gateway", "models", "router", "serve", "up", "worker"):
        assert name in text
        assert cli.find_command(name) is not None


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["wrker"], {}) == 2
    assert "there is no command 'wrker'; did you mean worker?" in capsys.readouterr().err
    assert cli.main([], {}) == 2


def test_bad_settings_exit_2_and_show_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["worker", "m", "--block-size", "17"], {}) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "octavo: error: 2 settings are wrong:"
    assert lines[1].startswith("  block_size: got 17; must be one of 16")
    assert lines[2].startswith("  router: got none")


def test_one_bad_setting_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["router", "--router-port", "x"], {}) == 2
    assert capsys.readouterr().err == "octavo: error: router_port: got 'x'; must be an integer (--router-port)\n"


@pytest.mark.parametrize(("error", "code"), [(InvalidInput("bad"), 2), (Unavailable("gone"), 1)])
def test_typed_errors_become_one_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def run(argv: object, env: object) -> int:
        raise error

    module = types.ModuleType("command")
    module.run = run  # type: ignore[attr-defined]
    assert cli.run_command(module, [], {}) == code
    assert capsys.readouterr().err == f"octavo: error: {error}\n"
