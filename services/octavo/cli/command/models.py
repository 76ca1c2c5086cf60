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
    from octavo.hub import catalog

    entries = catalog.list_models()
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        place = str(entry.path) if entry.path else "not fetched"
        about = f"{entry.source}, {entry.description}" if entry.description else entry.source
        print(f"{entry.name:<{width}}  {entry.format:<11}  {entry.size / 1e6:>9.1f} MB  {about}  [{place}]")
    return 0


def fetch_model(model: str, revision: str) -> int:
    from octavo.hub import catalog
    from octavo.obs.progress import ProgressDisplay

    with ProgressDisplay() as display:
        path = catalog.fetch_model(
            model, lambda what, fraction: display.update("model", what, fraction), revision=revision
        )
    print(path)
    return 0
