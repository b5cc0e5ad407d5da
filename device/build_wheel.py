# SPDX-License-Identifier: Apache-2.0
"""Build the wheel ``dunnage-device``: the modules that run on a device, for Python 3.9 and later, without dependencies.

The wheel has the modules of Dunnage that ``dunnage.devices`` imports, as the package ``dunnage_device``, so that both
can be installed together. They are the same code with the same names; what Python 3.9 does not have is written
otherwise (``backport.py``). The wheel is the same, byte for byte, each time.

    python device/build_wheel.py --outdir dist
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, HERE = ROOT / "src" / "dunnage", Path(__file__).resolve().parent
ROOTS = ("devices.client", "devices.sending", "devices.tokens", "devices.allowance")
PACKAGE = "dunnage_device"
BACKPORTED = {"dataclass": "dataclasses", "StrEnum": "enum", "bisect_right": "bisect"}
EPOCH = (1980, 1, 1, 0, 0, 0)


class ForOlderPython(ast.NodeTransformer):
    """Rename imports, and write otherwise what Python 3.9 does not have."""

    def __init__(self, assumptions: dict[str, str]) -> None:
        self.assumptions, self.used = assumptions, set[str]()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST] | None:
        if node.module and node.module.split(".")[0] == "dunnage":
            node.module = PACKAGE + node.module.removeprefix("dunnage")
        moved = [alias for alias in node.names if BACKPORTED.get(alias.name) == node.module]
        self.used |= {alias.name for alias in moved}
        node.names = [alias for alias in node.names if alias not in moved]
        return node if node.names else None

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        node.names = [alias for alias in node.names if alias.name != "tomllib"]
        return node if node.names else None

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if isinstance(node.target, ast.Name) and node.target.id == "_ASSUMPTIONS":
            node.value = ast.parse(repr(self.assumptions), mode="eval").body
            return node
        node.value = self.visit(node.value) if node.value is not None else None
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        names = _united(node.value)
        if len(names) > 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id[:1].isupper():
            self.used.add("Union")
            node.value = ast.parse(f"Union[{', '.join(map(ast.unparse, names))}]", mode="eval").body
            return node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
            kinds = _united(node.args[1])
            node.args[1] = ast.Tuple(kinds, ast.Load()) if len(kinds) > 1 else node.args[1]
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            strict = any(key.arg == "strict" and getattr(key.value, "value", False) for key in node.keywords)
            node.keywords = [key for key in node.keywords if key.arg != "strict"]
            if strict:
                self.used.add("strict_zip")
                node.func = ast.Name("strict_zip", ast.Load())
        if isinstance(node.func, ast.Attribute) and node.func.attr == "bit_count":
            self.used.add("bit_count")
            node = ast.Call(ast.Name("bit_count", ast.Load()), [node.func.value], [])
        return node


def _united(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_united(node.left), *_united(node.right)]
    return [node]


def modules() -> dict[str, Path]:
    """Return the modules to ship: those that the roots import, at any depth."""
    found: dict[str, Path] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        parts = name.split(".") if name else []
        path = SOURCE.joinpath(*parts)
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or not path.is_file():
            continue
        if name:
            found[name] = path
        waiting += [".".join(parts[:depth]) for depth in range(1, len(parts))]
        if name in ("model", "noise"):  # whole packages elsewhere; here only what is imported
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dunnage":
                base = str(node.module).removeprefix("dunnage").lstrip(".")
                waiting += [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
    return found


def sources(version: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every file of the package."""
    assumptions = tomllib.loads((SOURCE / "model" / "assumptions.toml").read_text(encoding="utf-8"))
    first = f'"""Dunnage on a device: the standard library alone, Python 3.9 and later."""\n__version__ = {version!r}\n'
    yield "__init__.py", first
    yield "py.typed", ""
    yield "backport.py", (HERE / "backport.py").read_text(encoding="utf-8")
    for name, path in sorted(modules().items()):
        text = path.read_text(encoding="utf-8")
        where = "/".join(name.split(".")) + ("/__init__.py" if path.name == "__init__.py" else ".py")
        if path.name == "__init__.py":
            yield where, f"{ast.get_docstring(ast.parse(text)) or ''!r}\n"
            continue
        change = ForOlderPython(assumptions)
        tree = ast.fix_missing_locations(change.visit(ast.parse(text)))
        extra = [ast.parse("from typing import Union").body[0]] if "Union" in change.used else []
        if names := sorted(change.used - {"Union"}):
            extra.append(ast.parse(f"from {PACKAGE}.backport import {', '.join(names)}").body[0])
        futures = [at for at, n in enumerate(tree.body) if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
        tree.body[max(futures, default=0) + 1 : max(futures, default=0) + 1] = extra
        made = "# SPDX-License-Identifier: Apache-2.0\n" + ast.unparse(tree) + "\n"
        ast.parse(made, feature_version=(3, 9))
        yield where, made


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel dunnage-device.")
    parser.add_argument("--outdir", default="dist", type=Path)
    outdir: Path = parser.parse_args().outdir
    scope: dict[str, str] = {}
    exec((SOURCE / "_version.py").read_text(encoding="utf-8"), scope)
    version = scope["__version__"]
    info = f"{PACKAGE}-{version}.dist-info"
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    metadata = (
        f"Metadata-Version: 2.1\nName: dunnage-device\nVersion: {version}\nSummary: Private reports from vehicles\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n" + readme
    )
    files = {f"{PACKAGE}/{name}": text for name, text in sources(version)}
    files |= {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: dunnage\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    outdir.mkdir(parents=True, exist_ok=True)
    target = outdir / f"{PACKAGE}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, text.encode())
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main()
