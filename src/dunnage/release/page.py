# SPDX-License-Identifier: Apache-2.0
"""The certificate as a page that a person without Python can read."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from dunnage.model.certificate import Certificate, ExpectedError, Total
from dunnage.release.kinds import fill, text_of
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
        from dunnage.release.kinds.counts import NOISE_WORDS, expected_rows

        about, *rows = expected_rows(expected)
        noise = f'<p class="basis void"><strong>{escape(NOISE_WORDS)}</strong></p>\n' if expected.is_noise else ""
        useful = f"<h2>How far off the counts are</h2>\n{noise}<p>{escape(about[0])}</p>\n{_table(*rows)}"
    page = fill(
        "certificate.html",
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
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
