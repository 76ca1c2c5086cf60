"""Generate `shared/octavo/pb` from `protos/octavo/v1/*.proto`; with `--check`, fail when the committed stubs differ.

Descriptor names stay `octavo/v1/…`; only the imports between stubs are rewritten to `octavo.pb`.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "shared" / "octavo" / "pb"
INIT = '"""Generated protobuf stubs (`make proto`).  Only `octavo.rpc` may import them."""\n'


def generate(out: Path) -> None:
    """Write all stubs into `out`."""
    include = resources.files("grpc_tools") / "_proto"
    protos = sorted(str(p.relative_to(ROOT / "protos")) for p in (ROOT / "protos").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as tmp:
        args = ["protoc", f"-I{ROOT / 'protos'}", f"-I{include}", f"--python_out={tmp}", f"--pyi_out={tmp}"]
        if protoc.main([*args, f"--grpc_python_out={tmp}", *protos]) != 0:
            raise SystemExit("protoc failed")
        for stub in sorted(Path(tmp, "octavo", "v1").iterdir()):
            text = re.sub(r"from octavo\.v1 import", "from octavo.pb import", stub.read_text())
            (out / stub.name).write_text(text)
    (out / "__init__.py").write_text(INIT)


def main() -> None:
    with tempfile.TemporaryDirectory() as tmp:
        fresh = Path(tmp)
        generate(fresh)
        names = sorted(p.name for p in fresh.iterdir())
        if "--check" in sys.argv[1:]:
            committed = sorted(p.name for p in TARGET.glob("*.py*") if p.is_file())
            _, differ, missing = filecmp.cmpfiles(fresh, TARGET, names, shallow=False)
            extra = sorted(set(committed) - set(names))
            if differ or missing or extra:
                raise SystemExit(f"stubs drift from protos; run `make proto`: {[*differ, *missing, *extra]}")
            return
        TARGET.mkdir(parents=True, exist_ok=True)
        for old in TARGET.glob("*.py*"):
            old.unlink()
        for name in names:
            shutil.copy(fresh / name, TARGET / name)


if __name__ == "__main__":
    main()
