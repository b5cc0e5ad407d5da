# SPDX-License-Identifier: Apache-2.0
"""Check the documents: links that lead somewhere, and a reference page that says what the code says.

``--write`` writes ``docs/reference.md`` anew from the docstrings.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import dunnage

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
GROUPS = {
    "The verbs": (
        "io",
        "publishing",
        "verification",
        "planning.packing",
        "planning.models",
        "settle",
        "planning.fleet",
        "settle.fleets",
        "planning.exports",
        "gtfs",
        "local.tasks",
        "devices",
        "local.estimate",
        "auditing.utility",
        "auditing.audit",
        "auditing.finding",
        "auditing.attacks",
    ),
    "The nouns": (
        "policy",
        "schema",
        "domains",
        "trips",
        "city",
        "dataset",
        "release",
        "publication",
        "certificate",
        "ledger",
        "noise",
        "planning.plan",
        "planning.trucks",
        "routes",
        "planning.fleet_plan",
        "planning.dispatch",
        "policy.carriers",
        "local.subjects",
        "local.task",
        "local.report",
        "local.allowance",
        "local.client",
        "local.tally",
        "local.identity",
        "auditing.fleet",
    ),
    "Guarantees": ("guarantees", "sampling_loss"),
    "Mechanisms": (
        "mechanisms.constrained_counts",
        "mechanisms.full_domain",
        "mechanisms.hierarchical_counts",
        "mechanisms.noisy_clusters",
        "mechanisms.noisy_counts",
        "mechanisms.noisy_values",
        "mechanisms.partition",
        "mechanisms.sampled_lattice",
        "mechanisms.utility_clusters",
        "mechanisms.foresight",
        "local.numeric",
        "local.location",
        "local.trajectory",
        "laws",
    ),
    "Generated data": ("samples",),
    "Errors": ("errors",),
}


def documents() -> list[Path]:
    """List all documents of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def broken_links() -> list[str]:
    """Find links to files or headings that do not exist; web addresses are not followed."""
    problems = []
    for document in documents():
        for target in LINK.findall(document.read_text()):
            path, _, heading = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            file = (document.parent / path).resolve() if path else document
            if not file.exists():
                problems.append(f"{document.relative_to(ROOT)}: no file {path}")
            elif heading and heading not in anchors(file):
                problems.append(f"{document.relative_to(ROOT)}: no heading #{heading} in {path or 'itself'}")
    return problems


def anchors(document: Path) -> set[str]:
    """List the anchors of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def reference() -> str:
    """Write the reference page: every public name, grouped by use, with its signature and docstring."""
    listed = [module for modules in GROUPS.values() for module in modules]
    if sorted(listed) != sorted(dunnage._GROUPS):
        raise SystemExit("docs/check_docs.py: GROUPS and dunnage._GROUPS name different modules")
    parts = ["# Reference", "", "Made from the docstrings by `make docs`. Import as `import dunnage as dn`.", ""]
    for title, modules in GROUPS.items():
        parts += [f"## {title}", ""]
        for module in modules:
            for name in dunnage._GROUPS[module]:
                parts += [*_entry(name), ""]
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str) -> list[str]:
    value = getattr(dunnage, name)
    lines = [f"### {name}", ""]
    if inspect.isfunction(value):
        lines += ["```python", f"{name}{_signature(value)}", "```", ""]
    return [*lines, "```text", inspect.cleandoc(value.__doc__ or ""), "```"]


def _signature(value: object) -> str:
    text = str(inspect.signature(value))  # type: ignore[arg-type]
    return text.replace("'", "")


def main() -> None:
    """Check everything, or write the reference page."""
    if "--write" in sys.argv:
        REFERENCE.write_text(reference())
        print(f"wrote {REFERENCE.relative_to(ROOT)}")
    problems = broken_links()
    if not REFERENCE.exists() or REFERENCE.read_text() != reference():
        problems.append("docs/reference.md is not what the docstrings say: run make docs")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(documents())} documents: links and reference are right")


if __name__ == "__main__":
    main()
