# SPDX-License-Identifier: Apache-2.0
"""The sign-off of an audit: one printed page that says what is released, at which odds and cost, and who approved it.

Long texts and lists are cut to what a page of A4 holds; how many entries there are besides is said. All of them are in
the audit and the certificate.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from dunnage._version import __version__
from dunnage.auditing.findings import Finding
from dunnage.auditing.run import Audit, Statement
from dunnage.certificate import Composition, JsonObject, Total
from dunnage.guarantees import Basis
from dunnage.pages.common import render
from dunnage.text import number_text, percent

MOST_RISKS, MOST_COSTS, FEWEST = 4, 4, 2
# Characters that a page holds of each part.
_ROOM = {"title": 60, "mechanism": 220, "promise": 450, "in_clear": 400, "warnings": 240, "sentence": 250, "table": 700}
# Characters of assumptions if nothing else is long, and at least; and of all else that leave them as much room.
_MOST_ASSUMED, _LEAST_ASSUMED, _ALL_ELSE = 1150, 280, 2400
# What is shown, in this order, as far as it was found; the part of a name before a bracket.
_RISKS = (
    "membership guess",
    "membership guess, rider",
    "membership bound",
    "localisation, 1 day",
    "localisation, 30 days",
    "tuple guess",
    "suspicion at most, one slot",
    "record linkage",
    "truck linkage",
    "attribute linkage",
    "prosecutor risk",
    "marketer risk",
    "journalist risk",
    "identification before release",
    "certain absence",
)
_COSTS = (
    "trucks",
    "shuttles",
    "cost",
    "wait",
    "plan feasible",
    "total distortion",
    "RMSE per cell",
    "error of the total",
    "total variation distance",
    "RMSE of shares",
    "error of the mean",
    "mean absolute error",
    "interval width",
    "top pairs kept",
    "coverage",
    "trips created, expected",
    "noise",
)
_MODELS = {
    "k-anonymity": "k-anonymity: every released record looks like k - 1 others at least",
    "dp": "Differential privacy: what is released hardly depends on any one {unit}",
    "sampled-dp": "Differential privacy by a secret sample: it hardly shows whether any one {unit} is in the data",
    "within-cluster": "Differential privacy within clusters: values of one cluster are hardly told apart",
    "within-published-borders": "Differential privacy within published borders",
    "local-dp": "Local differential privacy: a device perturbs before it sends, and no report tells much",
    "metric-local-dp": "Local differential privacy by distance: near values are hardly told apart",
}
_BASES = {
    "proved": "The guarantee follows from the code, under the assumptions named below.",
    "claimed": "The guarantee is the paper's claim; what really holds is said here.",
    "void": "Nothing is promised.",
}


def sign_off_page(audit: Audit) -> str:
    """Write the one-page sign-off of an audit.

    That of an audit which is not external shows private figures: keep the file private (mode 0600). The same audit
    always gives the same page.
    """
    stated, assumed = audit.statement, audit.statement.assumptions
    shown = [item for item in audit.findings if not (audit.external and item.private)]
    risks, costs = _chosen(shown, _RISKS, MOST_RISKS), _chosen(shown, _COSTS, MOST_COSTS)
    promise, warnings = _fitting(_promises(stated), _ROOM["promise"]), _fitting(stated.warnings, _ROOM["warnings"])
    # Assumptions have the room that all else leaves; their names say enough to look them up.
    sentences = [_cut(item.sentence, _ROOM["sentence"]) for item in (*risks, *costs)]
    used = sum(map(len, [*sentences, *promise, _cut(_mechanism(stated.mechanism), _ROOM["mechanism"]), *warnings]))
    room = max(_LEAST_ASSUMED, min(_MOST_ASSUMED, _MOST_ASSUMED + _ALL_ELSE - used))
    told = [f"{name}: {words}" for name, words in assumed.items()]
    told = told if sum(map(len, told)) <= room else [", ".join(assumed)]
    lists = {
        "It assumes": _fitting(told, room),
        "In clear": _fitting(stated.in_clear, _ROOM["in_clear"]),
        "Warnings": warnings,
    }
    # The lines to sign on are filled in as far as it is known who approved.
    name, _, role = (audit.approved.name if audit.approved else "").partition(",")
    date = audit.approved.time[:10] if audit.approved else ""
    content = {
        "audit": audit,
        "title": _cut(f"Sign-off: {audit.dataset}" + (f", {audit.period}" if audit.period else ""), _ROOM["title"]),
        "facts": _facts(audit),
        "basis": stated.basis,
        "basis_words": _BASES.get(stated.basis, ""),
        "promise": promise,
        "odds": _odds(stated),
        "risks": [told_line(item, _ROOM["sentence"]) for item in risks],
        "costs": [told_line(item, _ROOM["sentence"]) for item in costs],
        "lists": [(title, items) for title, items in lists.items() if items],
        "approval": [("Approved by", name.strip()), ("Role", role.strip()), ("Date", date), ("Signature", "")],
        "version": __version__,
    }
    return render("signoff.html", content)


def told_line(item: Finding, room: int | None = None) -> dict[str, str]:
    """Write the figures and the sentence of a finding for a page."""
    low, high = item.interval
    sentence = item.sentence if room is None else _cut(item.sentence, room)
    return {
        "name": item.name,
        "value": item.text(item.value),
        "between": f"{item.text(low)} to {item.text(high)}" if low < high else "",
        "baseline": item.text(item.baseline),
        "sentence": sentence.replace(" %", "\u00a0%"),
    }


def _facts(audit: Audit) -> list[tuple[str, str]]:
    """Say what is signed for, and under which policy."""
    stated, policy, plan = audit.statement, audit.statement.policy, "none"
    if stated.plan is not None:
        what = "in cost" if stated.plan.minimises == "cost" else stated.plan.minimises
        plan = f"{number_text(stated.plan.objective)} {what}" + (
            f" by {stated.plan.model}" if stated.plan.model else ""
        )
    differs = policy.differs if policy else ()
    given = "not given to this audit" if policy is None else policy.digest
    return [
        ("Dataset", _cut(audit.dataset, _ROOM["title"])),
        ("Period", audit.period or "none"),
        ("Protects", f"one {audit.protects}"),
        ("Released", stated.time + (", signed" if stated.signed else ", not signed")),
        ("Mechanism", _cut(_mechanism(stated.mechanism), _ROOM["mechanism"])),
        ("Plan", plan),
        ("With earlier releases", _composed(stated.composition)),
        ("Release (SHA-256)", audit.release),
        ("Policy (SHA-256)", given + (f"; says otherwise of: {', '.join(differs)}" if differs else "")),
    ]


def _mechanism(mechanism: JsonObject) -> str:
    """Write a mechanism and its parameters; those that are not set are left out."""
    told = []
    for key, value in mechanism.items():
        if key == "purposes" and isinstance(value, dict):
            purposes = [f"{name} ({_purpose(item)})" for name, item in sorted(value.items())]
            told.append(f"{key} {' and '.join(purposes)}")
        elif key != "name" and value is not None and value is not False and value != {}:
            told.append(f"{key} {_parameter(value)}")
    return ": ".join(part for part in (str(mechanism.get("name", "unknown")), ", ".join(told)) if part)


def _parameter(value: JsonValue) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_parameter(part)}" for name, part in value.items())
    return "/".join(_parameter(part) for part in value) if isinstance(value, list) else str(value)


def _purpose(item: JsonValue) -> str:
    if not isinstance(item, dict):
        return str(item)
    tiers = item.get("tiers")
    losses = ", ".join(f"{name} epsilon {loss}" for name, loss in tiers.items()) if isinstance(tiers, dict) else ""
    return ", ".join(part for part in (str(item.get("name", "")), losses) if part)


def _composed(composition: Composition | None) -> str:
    """Say what this and all earlier releases of the dataset add up to."""
    if composition is None or not isinstance(composition.total, Total):
        return "no total exists: " + (composition.rule if composition else "").removeprefix("does not compose: ")
    total = composition.total
    delta = f", delta {total.delta}" if total.delta else ""
    return f"epsilon {total.epsilon}{delta} in all ({composition.neighbours or ''})"


def _promises(stated: Statement) -> list[str]:
    """Say in plain words what is promised; of a claim, what is claimed too."""
    promised = []
    if stated.guarantee is not None and stated.basis == Basis.PROVED:
        words, parts = (
            _MODELS[stated.guarantee.model].format(unit=stated.guarantee.protects),
            stated.guarantee.to_dict(),
        )
        figures = [f"{name} = {parts[name]}" for name in ("k", "epsilon", "delta", "beta") if parts.get(name)]
        promised = [f"{words} ({', '.join(figures)})."]
    claim = [f"Claimed: {stated.claim}."] if stated.claim else []
    return [*promised, *(stated.meaning.sentences if stated.meaning is not None else []), *claim]


def _odds(stated: Statement) -> list[tuple[str, str]]:
    """Give what a suspicion may become, or how often a row may be named, at most."""
    rows = []
    for row in stated.meaning.odds if stated.meaning is not None else []:
        before = f"a suspicion of {percent(row.before)}" if row.before is not None else ""
        if row.at_most is not None:
            rows.append((f"{before} becomes", percent(row.at_most)))
        elif row.right_guess_at_most is not None:
            rows.append((f"with {before} the best guess is right", percent(row.right_guess_at_most)))
        elif row.right_at_most is not None:
            rows.append((row.attack or "a guess is right", percent(row.right_at_most)))
    return [(f"{words[0].upper()}{words[1:]}", most) for words, most in rows]


def _chosen(findings: Sequence[Finding], wanted: Sequence[str], most: int) -> list[Finding]:
    """Choose the findings to show, as far as there is room: of several attributes the worst one."""
    found: dict[str, tuple[float, Finding]] = {}
    for item in findings:
        name = item.name.partition(" (")[0]
        if name not in wanted and name.startswith("membership guess, rider"):
            name = "membership guess, rider"
        badness = item.value / item.baseline if item.baseline else item.value
        if name in wanted and (name not in found or badness > found[name][0]):
            found[name] = badness, item
    kept: list[Finding] = []
    for _, item in (found[name] for name in wanted if name in found):
        room = _ROOM["table"] - sum(len(one.sentence) for one in kept)
        if len(kept) < FEWEST or (len(kept) < most and len(item.sentence) <= room):
            kept.append(item)
    return kept


def _fitting(items: Sequence[str], room: int) -> list[str]:
    """Keep as many items as there is room for, one at least, and say how many more there are."""
    kept: list[str] = []
    for item in items:
        if kept and sum(map(len, kept)) + len(item) > room:
            left = len(items) - len(kept)
            return [*kept, f"and {left} more: see the certificate."]
        kept.append(_cut(item, room))
    return kept


def _cut(text: str, room: int) -> str:
    """Cut a text that is too long for its place, between two words if it has any near."""
    if len(text) <= room:
        return text
    whole = text[:room].rsplit(" ", 1)[0]
    return (whole if 2 * len(whole) > room else text[:room]) + " ..."
