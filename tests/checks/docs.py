"""What documents refer to exists: relative links, make targets, octavo commands and their flags.  No arguments."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from octavo.cli.main import command_names
from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.setting import settings_of

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
MAKE = re.compile(r"\bmake ([a-z][a-z-]+)")
OCTAVO = re.compile(r"(?m)(?:^|`)\s*octavo ([a-z|]+)([^`\n]*)")
FLAG = re.compile(r"(--[a-z][a-z-]+)")
OTHER_FLAGS = {"--help", "--version", "--config", "--revision"}


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def make_targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z][a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))


def known_flags() -> set[str]:
    commands = (ClusterService, GatewayService, RouterService, WorkerService)
    settings = [setting for command in commands for setting in settings_of(command)]
    aliases = {alias for setting in settings for alias in setting.option.aliases}
    negations = {"--no-" + setting.flag[2:] for setting in settings if setting.kind is bool}
    return {setting.flag for setting in settings} | aliases | negations | OTHER_FLAGS


def problems_of(document: Path) -> list[str]:
    text = document.read_text(encoding="utf-8")
    found = [
        f"no file {target}"
        for target in LINK.findall(text)
        if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists()
    ]
    targets, commands, flags = make_targets(), set(command_names()), known_flags()
    for code in CODE.findall(text):
        found += [f"no make target {name}" for name in MAKE.findall(code) if name not in targets]
        for names, rest in OCTAVO.findall(code):
            found += [f"no command octavo {name}" for name in names.split("|") if name and name not in commands]
            found += [f"no flag {flag}" for flag in FLAG.findall(rest.split("#")[0]) if flag not in flags]
    return [f"{document.relative_to(ROOT)}: {problem}" for problem in found]


def main() -> int:
    problems = [problem for document in documents() for problem in problems_of(document)]
    print("\n".join(problems) or f"{len(documents())} documents refer to what exists")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
