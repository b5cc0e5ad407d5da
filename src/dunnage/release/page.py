# SPDX-License-Identifier: Apache-2.0
"""Two pages for a person without Python: the certificate to read, and a check of the release in the browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import typing
from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from types import NoneType, UnionType
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, JsonValue, WithJsonSchema

from dunnage._version import __version__
from dunnage.model.certificate import (
    DIGESTS_SAY,
    FORMAT,
    MAX_CERTIFICATE_BYTES,
    MAX_DIGITS,
    PRINTED_FORMS,
    SIGNED_PREFIX,
    Certificate,
    ExpectedError,
    Total,
)
from dunnage.model.domains import Stops
from dunnage.model.guarantees import PROJECT, KAnonymity, SampledDP
from dunnage.model.hierarchies import ANY
from dunnage.model.periods import MAX_LABEL
from dunnage.model.schema import COUNTS_SUFFIX, DIAMETER_SUFFIX, RIDER
from dunnage.model.trips import END_COLUMNS
from dunnage.release.kinds import (
    COUNTS,
    ESTIMATES,
    GENERALISED,
    NAMES_NOT_CHECKED,
    PUBLIC,
    ROWS,
    SENSITIVE,
    Unchecked,
    fill,
    text_of,
)
from dunnage.release.kinds.counts import NOISE_WORDS, CategoriesKind, CountsKind, expected_rows
from dunnage.release.kinds.estimates import COLUMN_TYPES, OTHER, OUTSIDE, QUANTILES, SUM_TOLERANCE, EstimatesKind
from dunnage.release.kinds.rows import TOLERANCE, ClassesKind, NoisyKind, SlotsKind
from dunnage.tables.columns import PLAIN_NUMBER, RUNS_IN_SPREADSHEET
from dunnage.text import unbroken

BASIS_WORDS = {
    "proved": "The guarantee follows from the code, under the assumptions named below.",
    "claimed": "The guarantee is only claimed by the paper. What really holds is stated here.",
    "void": "This release promises nothing.",
}


UNSET: tuple[object, ...] = (None, {}, [])  # parameters that nobody set, which say nothing to a reader


def certificate_page(certificate: Certificate, loss_words: Iterable[str]) -> str:
    """Write the page. It depends only on what a certificate states before files have digests."""
    names, basis = {"model": "Guarantee", "protects": "Protects", "neighbours": "Compared datasets"}, certificate.basis
    terms = [(names.get(name, name), _text(value)) for name, value in certificate.guarantee.to_dict().items()]
    title = certificate.dataset + (f", {certificate.period}" if certificate.period is not None else "")
    odds = [row.sentence for row in certificate.meaning.odds if row.sentence]
    claims = []
    for name, text in (
        ("The paper claims", certificate.claim),
        ("Why this is not proved", certificate.why),
        ("What really holds", None if certificate.holds is None else _terms(certificate.holds.to_dict())),
    ):
        claims += [(name, text)] if text else []
    total = certificate.composition.total
    sums = ""
    if isinstance(total, Total):
        sums = f"epsilon {total.epsilon}" + (f", delta {total.delta}" if total.delta else "")
    made = {
        "Mechanism": _terms(certificate.mechanism),
        "Random numbers": certificate.numerics,
        "All releases together": f"{certificate.composition.rule}{f' ({sums})' if sums else ''}",
        "Proof": "" if certificate.proof is None else str(certificate.proof),
        "Made": f"{certificate.time} with Dunnage {certificate.software.dunnage}",
        "Entry in the owner's ledger": certificate.spend.id,
    }
    columns = [(item.name, item.role, item.kind or item.domain_kind, item.unit) for item in certificate.attributes]
    style = text_of("certificate.css")
    expected, useful = getattr(certificate.measures, "expected", None), ""
    if isinstance(expected, ExpectedError):
        about, *rows = expected_rows(expected)
        noise = f'<p class="basis void"><strong>{escape(NOISE_WORDS)}</strong></p>\n' if expected.is_noise else ""
        useful = f"<h2>How far off the counts are</h2>\n{noise}<p>{escape(about[0])}</p>\n{_table(*rows)}"
    page = fill(
        "certificate.html",
        style=style,
        style_hash=_hash(style),
        title=escape(title),
        basis=escape(basis),
        basis_name=escape(basis.capitalize()),
        basis_words=escape(BASIS_WORDS.get(basis, "")),
        promise=_named(terms) + _bullets([*certificate.meaning.sentences, *odds, *loss_words]),
        claims=_named(claims) + _bullets(certificate.warnings or []),
        assumptions=_named(sorted(certificate.assumptions.items())) or "<p>Nothing beyond what is promised.</p>",
        clear=_bullets(certificate.in_clear) or "<p>Nothing.</p>",
        columns=_table(("Column", "Role", "Kind", "Unit"), *columns),
        useful=useful,
        made=_named(made.items()),
    )
    return unbroken(page)


def _table(head: Sequence[str], *rows: Sequence[str]) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody>\n</table>\n"


def _terms(stated: dict[str, Any]) -> str:
    """Write a table in one line, in an order that does not depend on the file: its name or model first."""
    names = sorted(stated, key=lambda name: (name not in ("name", "model"), name))
    return ", ".join(f"{name} {_text(stated[name])}" for name in names if stated[name] not in UNSET)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_text(part)}" for name, part in sorted(value.items()))
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _named(items: Iterable[tuple[str, str]]) -> str:
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>\n" for name, text in items if text)
    return f"<dl>\n{lines}</dl>\n" if lines else ""


def _bullets(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(item)}</li>\n" for item in items)
    return f"<ul>\n{lines}</ul>\n" if lines else ""


# --- The page that checks a release

_PROMISE = "that guarantee, basis, assumptions, odds and sentences are what the mechanism promises"
NOT_HERE: tuple[Unchecked, ...] = (
    (f"{_PROMISE} with these parameters and columns; that attributes, figures and totals are in their form",),
    ("that Parquet files have the same tables as CSV files, and no other byte",),
    ("that README.md, datapackage.json, certificate.html and this page say what the certificate says",),
    ("how classes were formed: levels of hierarchies, bounds on grids, paths, loss, t, distortion", "measures.loss"),
    (
        "how noise was added: its law and amount, the sizes of slots, and what is left out as too small",
        *(f"measures.{name}" for name in ("noise", "published_intervals", "slots", "features", "reports")),
    ),
    ("that days and their number follow from the calendar", f"attributes.*.kind~{Stops.kind}"),
    ("that estimates, reports and losses are those of the task, and where its cells lie", "measures.task"),
    ("times of day to the second: CSV files have them to the minute", "attributes.*.domain.clock"),
)
"""What ``verify`` checks, and the page in the folder cannot."""
_MAX_TEXT = 1 << 28  # bytes of a table: browsers have texts of up to twice as many characters
_SPACED = re.compile(
    r"""("(?:[^"\\]|\\.)*"|`[^`]*`|/(?:[^/\\[ ]|\\.|\[(?:[^]\\]|\\.)*\])+/[a-z]*(?=[.,;)]))"""
    r"""| ?([=<>+*?:,;(){}&|!\[\]%^~-]+) ?"""
)  # texts and patterns of a line of the script as they are; elsewhere, spaces around signs
_KEY_START = "302a300506032b6570032100"  # of an Ed25519 public key in DER


@lru_cache(maxsize=1)
def verify_page(files: tuple[str, ...], texts: tuple[str, ...], tables: tuple[str, ...]) -> str:
    """Write the page, which is the same for all releases of a version; what it must know about one is in the folder."""
    names = {pa.string(): "text", pa.float64(): "number?", pa.int64(): "integer?"}
    kinds = {
        "classes": ClassesKind,
        "slots": SlotsKind,
        "noisy": NoisyKind,
        COUNTS: CountsKind,
        "categories": CategoriesKind,
        ESTIMATES: EstimatesKind,
    }
    facts = {
        "version": __version__,
        "project": PROJECT,
        "format": FORMAT,
        "certificate": "certificate.json",
        "files": files,
        "texts": texts,
        "tables": tables,
        "types": _types(Certificate),
        "forms": PRINTED_FORMS,
        "max_certificate": MAX_CERTIFICATE_BYTES,
        "max_text": _MAX_TEXT,
        "max_digits": MAX_DIGITS,
        "max_label": MAX_LABEL,
        "prefix": SIGNED_PREFIX.decode(),
        "key_start": _KEY_START,
        "digests_say": DIGESTS_SAY,
        "kinds": {"rows": ROWS, "counts": COUNTS, "estimates": ESTIMATES},
        "models": {"k": KAnonymity.model, "sampled": SampledDP.model},
        "roles": {"public": PUBLIC, "sensitive": SENSITIVE, "generalised": GENERALISED},
        "rider": RIDER,
        "any": ANY,
        "diameter": DIAMETER_SUFFIX,
        "counts": COUNTS_SUFFIX,
        "ends": END_COLUMNS,
        "stop": Stops.kind,
        "estimates": [(name, names[kind]) for name, kind in COLUMN_TYPES.items()],
        "outside": OUTSIDE,
        "other": OTHER,
        "quantiles": QUANTILES,
        "tolerance": TOLERANCE,
        "sum_tolerance": SUM_TOLERANCE,
        "runs": RUNS_IN_SPREADSHEET.replace("x{", "u{"),
        "plain_number": PLAIN_NUMBER,
        "here": NOT_HERE,
        "alone": {name: [*kind.unchecked, (NAMES_NOT_CHECKED,)] for name, kind in kinds.items()},
    }
    style = text_of("certificate.css") + text_of("verify.css")
    # Without indentation, and spaces outside texts and patterns, the page is a quarter shorter.
    lines = [line.strip() for line in text_of("verify.js").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("//", "/**"))]
    script = "\n".join(line if line.count("`") > 2 else _SPACED.sub(r"\1\2", line) for line in lines)
    return fill(
        "verify.html",
        version=__version__,
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        facts=json.dumps(facts, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c"),
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _types(model: type[BaseModel]) -> dict[str, object]:
    """Describe a model and those in it for a script: tables (``?`` marks what may be missing), lists, values."""
    found: dict[str, object] = {}

    def of(hint: Any) -> Any:
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        stated = [item.json_schema for item in parts[1:] if isinstance(item, WithJsonSchema)]
        if hint is JsonValue:
            return "json"
        if stated and stated[0] is not None:  # read by a function of its own
            return {"is": stated[0]["enum"]} if "enum" in stated[0] else {"all": "json"}
        if origin in (typing.Union, UnionType):
            return [of(part) for part in parts]
        if origin is typing.Literal:
            return {"is": parts}
        if origin is list:
            return {"list": of(parts[0])}
        if origin is dict:
            return {"all": of(parts[1])}
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            if hint.__name__ not in found:
                found[hint.__name__] = {}
                hints = typing.get_type_hints(hint, include_extras=True)
                found[hint.__name__] = {
                    f"{name}{'' if item.is_required() else '?'}": of(hints[name])
                    for name, item in hint.model_fields.items()
                }
            return f"#{hint.__name__}"
        return {str: "text", int: "whole", float: "float", bool: "bool", NoneType: "null"}[hint]

    of(model)
    return found
