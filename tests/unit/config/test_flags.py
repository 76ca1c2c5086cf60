"""The generated help."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.flags import build_parser
from octavo.config.flat import MASK, secret_env, to_argv, to_flat
from octavo.config.option import option
from octavo.config.resolve import resolve
from octavo.config.setting import settings_of


@dataclass(frozen=True)
class Keys:
    """Keys."""

    api_keys: tuple[str, ...] = option((), "Keys.", is_secret=True)


@dataclass(frozen=True)
class Command:
    keys: Keys = field(default_factory=Keys)


@pytest.mark.parametrize("command", [RouterService, GatewayService, WorkerService, ClusterService])
def test_help_is_complete(command: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = build_parser(command, "octavo x").format_help()
    for setting in settings_of(command):
        lines = [line for line in text.splitlines() if f"env: {setting.env}]" in line]
        assert len(lines) == 1, setting.name
        for part in (setting.option.help, "default: ", *setting.option.choices):
            assert part in lines[0], setting.name
        assert setting.flag in text
        assert all(alias in text for alias in setting.option.aliases)
    assert "--config FILE" in text


def test_secrets_are_never_shown() -> None:
    resolved = resolve(Command, ["--api-keys", "s3cret,other"], {"OCTAVO_API_KEYS": "third"})
    config = resolved.checked()
    assert to_flat(config) == {"api_keys": [MASK, MASK]}
    assert to_flat(config, has_secrets=True) == {"api_keys": ["s3cret", "other"]}
    assert to_argv(config) == []
    assert secret_env(config) == {"OCTAVO_API_KEYS": "s3cret,other"}
    shown = [resolved.info_json(), resolved.summary(), *resolved.overrides]
    assert resolved.overrides
    assert not any("s3cret" in text or "third" in text for text in shown)
