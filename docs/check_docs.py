# SPDX-License-Identifier: Apache-2.0
"""Check the documents: links that lead somewhere, and pages that say what the code says.

``--write`` writes ``docs/commands.md`` again from the commands' help, and ``docs/schemas/`` from the models of public
documents. The reference is built with the site, from the docstrings (``site_hooks.py``).
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ROOT / "docs" / "commands.md"
SCHEMAS = ROOT / "docs" / "schemas"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def documents() -> list[Path]:
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
    return {_anchor(heading) for heading in headings}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def commands() -> str:
    """Write the page of commands: what each does, an example, and its arguments and options."""
    import typer

    from dunnage.cli import app

    parts = ["# Commands", "", _COMMANDS_WORDS, ""]
    for name, command in _leaves(typer.main.get_command(app), "dunnage"):
        parts += [f"## `{name}`", "", *_command_words(command.help or ""), *_parameter_table(command.params)]
    return "\n".join(parts).rstrip() + "\n"


_COMMANDS_WORDS = (
    "Made from `dunnage COMMAND --help` by `make docs`. Exit codes: 0 fine, 1 a check failed or no plan exists, 2 bad "
    "input or a refusal. `--json` prints for programs. What exists is refused without `--force`, before anything "
    "is spent."
)


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Walk through commands, and those of groups."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, inner in command.commands.items():
        if not inner.hidden:
            yield from _leaves(inner, f"{name} {part}")


def _command_words(help_text: str) -> list[str]:
    """Return the paragraphs of a command's help, its example as a block of its own."""
    parts = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        words = " ".join(paragraph.split())
        example = words.removeprefix("Example: ")
        parts += [words, ""] if example == words else ["```text", example, "```", ""]
    return parts


def _parameter_table(parameters: list[Any]) -> list[str]:
    lines = [_parameter_line(parameter) for parameter in parameters if parameter.name not in _EVERYWHERE]
    return ["| argument or option | meaning | default |", "|---|---|---|", *lines, ""] if lines else []


_EVERYWHERE = ("help", "as_json", "force")


def _parameter_line(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    name = ", ".join(f"`{word}`" for word in [*parameter.opts, *parameter.secondary_opts])
    words = " ".join((parameter.help or "").split()).replace("|", "\\|")
    given = parameter.default
    if parameter.required:
        default = "needed"
    elif given in (None, False, ()) or callable(given):
        default = ""
    else:
        default = f"`{given}`"
    return f"| {name if is_option else f'`{parameter.name.upper()}`'} | {words} | {default} |"


def schemas() -> dict[Path, str]:
    """Write a JSON Schema for every public document, by the page it goes to."""
    from dunnage.advising.frontier import Frontier
    from dunnage.auditing.run import Audit
    from dunnage.collecting.periods import ClosingStatement
    from dunnage.model.certificate import Certificate
    from dunnage.model.house import HouseTables
    from dunnage.model.policy import PolicyTables
    from dunnage.planning.plan import FleetDocument, PlanDocument
    from dunnage.proving.verdict import Proof
    from dunnage.settle import SettlementDocument
    from dunnage.settle.fleets import FleetSettlementDocument
    from dunnage.verification import Verification

    models = {
        "policy": PolicyTables,
        "house": HouseTables,
        "certificate": Certificate,
        "closing-statement": ClosingStatement,
        "plan": PlanDocument,
        "fleet-plan": FleetDocument,
        "settlement": SettlementDocument,
        "fleet-settlement": FleetSettlementDocument,
        "audit": Audit,
        "frontier": Frontier,
        "proof": Proof,
        "verification": Verification,
    }
    pages = {}
    for name, model in models.items():
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(by_alias=True)}
        pages[SCHEMAS / f"{name}.schema.json"] = json.dumps(schema, indent=2, sort_keys=True) + "\n"
    return pages


def main() -> None:
    """Check everything, or write the pages that are made from the code."""
    made = {COMMANDS: commands(), **schemas()}
    problems = []
    for page, text in made.items():
        if "--write" in sys.argv:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            problems.append(f"{page.relative_to(ROOT)} is not what the code says: run make docs")
    problems += broken_links()
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(documents())} documents: links, commands and schemas are right")


if __name__ == "__main__":
    main()
