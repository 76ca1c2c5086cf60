"""List the demo models and what is fetched; `octavo models fetch MODEL` fetches one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from octavo.errors import InvalidInput


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise InvalidInput(f"{message} ({self.prog} --help)")


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    parser = _Parser(prog="octavo models", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    verbs.add_parser("list", help="list demo models and what is in the caches (the default)")
    fetch = verbs.add_parser("fetch", help="fetch a model into the cache")
    fetch.add_argument("model", metavar="MODEL", help="a demo name, a Hugging Face id, or repo:QUANT")
    fetch.add_argument("--revision", default="", help="revision on the model hub")
    args = parser.parse_args(list(argv))
    return fetch_model(args.model, args.revision) if args.verb == "fetch" else list_models()


def list_models() -> int:
    from octavo.hub.demo import DEMO_MODELS

    for model in DEMO_MODELS.values():
        state = str(model.path) if model.path.is_file() else "not fetched"
        print(f"{model.name:<20} {model.size / 1e6:>8.0f} MB  {model.description}  [{state}]")
    return 0


def fetch_model(model: str, revision: str) -> int:
    from octavo.hub.resolve import resolve_model
    from octavo.obs.progress import ProgressDisplay

    with ProgressDisplay() as display:
        files = resolve_model(
            model, revision=revision, progress=lambda what, fraction: display.update("model", what, fraction)
        )
    for path in files.weights:
        print(path)
    return 0
