# SPDX-License-Identifier: Apache-2.0
"""Documents for a person: a certificate by itself, a datapackage, a settlement, a proof, a demo's figures, a key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from dunnage.certificate import MAX_CERTIFICATE_BYTES, Certificate, load_public_key
from dunnage.errors import CheckFailed, InputError, ParameterError, TaskError
from dunnage.showing.common import Content, Shown, check_size, read_json
from dunnage.showing.devices import shown_task
from dunnage.showing.texts import statement_text

MOST_LISTED = 200
"""Most columns or files that are listed."""
_CERTIFICATE_FIELDS = frozenset({"basis", "guarantee", "digest"})


def shown_json(path: Path, devices: int) -> Shown:
    """Describe a JSON file: a certificate, a datapackage, a proof, figures of a demo, or a task."""
    content = read_json(path)
    if isinstance(content, dict) and content.keys() >= _CERTIFICATE_FIELDS:
        return shown_certificate(path)
    if isinstance(content, dict) and isinstance(content.get("resources"), list):
        return shown_datapackage(path, content)
    for has, describe in _BY_FIELDS.items():
        if isinstance(content, dict) and content.keys() >= has:
            return describe(path, content)
    try:
        return shown_task(path, devices)
    except TaskError as error:
        if isinstance(content, dict) and content.get("kind") == "dunnage task":
            raise
        raise ParameterError(
            f"{path} is neither a certificate nor a datapackage, a proof, a file of tallies nor a task: {error}"
        ) from None


def shown_certificate(path: Path) -> Shown:
    """Describe a certificate by itself; whether the other files fit it is not looked at."""
    check_size(path, MAX_CERTIFICATE_BYTES)
    try:
        certificate = Certificate.from_bytes(path.read_bytes())
    except CheckFailed as error:  # a file that cannot be read: nothing was asked to be checked
        raise InputError(str(path.parent), [str(error)]) from None
    period = f", period {certificate.period}" if certificate.period is not None else ""
    title = f"Certificate of {certificate.dataset}{period}"
    signer = certificate.signature.public_key if certificate.signature is not None else None
    lines = [
        f"{title}\n{'=' * len(title)}",
        statement_text(certificate),
        f"Signed      {f'by {signer}; not checked here' if signer else 'no'}",
        f"Files       {', '.join(sorted(certificate.files)[:MOST_LISTED])}; not checked here",
        f"Digest      {certificate.digest}",
        "Check it all with dunnage verify FOLDER.",
    ]
    stated = {name: value for name, value in certificate.plain().items() if name != "signature"}
    return {**stated, "digest": certificate.digest, "signed_by": signer}, "\n".join(lines)


def shown_datapackage(path: Path, content: Content) -> Shown:
    """Describe a datapackage: its tables, and the columns of each."""
    columns_of = {
        str(item["path"]): {
            str(field["name"]): str(field.get("type", ""))
            for field in item.get("schema", {}).get("fields", [])[:MOST_LISTED]
        }
        for item in content["resources"][:MOST_LISTED]
    }
    lines = [f"Datapackage {content.get('name', path.name)}: what is in which column, for programs"]
    for table, columns in columns_of.items():
        lines.append(f"Table       {table}")
        lines += [f"  {name:<24} {kind}".rstrip() for name, kind in columns.items()]
    lines.append("The release it belongs to says what it promises: show its folder.")
    resources = [{"path": table, "columns": columns} for table, columns in columns_of.items()]
    return {"kind": "datapackage", "resources": resources}, "\n".join(lines)


def shown_proof(path: Path, content: Content) -> Shown:
    """Describe what ``dunnage prove --json`` printed, or a demo kept of it: the table of verdicts."""
    from dunnage.documents import check
    from dunnage.proving.desk import Proof
    from dunnage.proving.verdict import Verdict

    rows = content["mechanisms"][:MOST_LISTED]
    verdicts = tuple(check(row, Verdict, path, what="a proof", remedy="Run dunnage prove --json anew.") for row in rows)
    proof = Proof(verdicts=verdicts, seconds=float(content.get("seconds", sum(item.seconds for item in verdicts))))
    return {"kind": "proof", **proof.to_dict()}, f"Proof       {path}: a copy, not run again\n\n{proof.summary()}"


def _shown_worst_cases(path: Path, content: Content) -> Shown:
    """Describe the worst cases that a demo found of one mechanism, of which it compares forms."""
    claimed = float(content["claimed"])
    found = {
        str(form): None if value is None else float(value)
        for form, value in list(content["measured"].items())[:MOST_LISTED]
    }
    lines = [
        f"Proof       {path}: {content['mechanism']}, epsilon {claimed:g} claimed",
        f"How         {content['how']}",
    ]
    for form, value in found.items():
        holds = value is not None and value <= claimed * (1 + 1e-9)
        verdict = "holds" if holds else "fails"
        lines.append(f"  {form:<24} {'no bound' if value is None else f'epsilon {value:.4g}'}: {verdict}")
    return {"kind": "proof", **content}, "\n".join(lines)


def _shown_figures(path: Path, content: Content) -> Shown:
    """Describe the figures that a demo worked out from other files."""
    figures = list(content["figures"].items())[:MOST_LISTED]
    lines = [f"Figures     {path}: worked out for the demo's page; numbers.csv lists all of its numbers"]
    lines += [f"  {name}: {item['value']} ({item['how']})" for name, item in figures]
    return {"kind": "figures", "figures": dict(figures)}, "\n".join(lines)


def _shown_utility(path: Path, content: Content) -> Shown:
    """Describe what plans of a demo cost beside the one on true weights."""
    lines = [f"Utility     {path}: what each plan costs beside the one on true weights"]
    lines += [
        f"  {name:<24} {item['objective']} trucks, {item['optimum']} needed"
        for name, item in list(content["plans"].items())[:MOST_LISTED]
    ]
    return {"kind": "utility", **content}, "\n".join(lines)


_BY_FIELDS: Mapping[frozenset[str], Callable[[Path, Content], Shown]] = {
    frozenset({"mechanisms"}): shown_proof,
    frozenset({"mechanism", "claimed", "measured", "how"}): _shown_worst_cases,
    frozenset({"format", "figures"}): _shown_figures,
    frozenset({"format", "capacity", "plans"}): _shown_utility,
}
"""By fields that no other document has together."""


def shown_pem(path: Path, head: bytes) -> Shown:
    """Describe a public key; a private one is refused."""
    if b"PRIVATE KEY" in head:
        raise ParameterError(
            f"{path} is a private key, which is never shown. Show its public half: "
            f"openssl pkey -in {path} -pubout -out {path.stem}.pub.pem"
        )
    raw = load_public_key(path)
    fingerprint = hashlib.sha256(raw).hexdigest()
    lines = [
        f"Public key  {raw.hex()} (Ed25519), as a signed certificate names it",
        f"SHA-256     {fingerprint}",
        f"Check with  dunnage verify RELEASE --signed-by {path}",
    ]
    content = {"kind": "public key", "algorithm": "ed25519", "public_key": raw.hex(), "sha256": fingerprint}
    return content, "\n".join(lines)


def shown_settlement(path: Path) -> Shown:
    """Describe a settlement for its owner, of packages or of shuttles."""
    from dunnage.settle.fleets import FleetSettlementDocument, read_settlement

    settled = read_settlement(path)
    told = "loading.csv and loads.csv tell of true packages"
    if isinstance(settled, FleetSettlementDocument):
        told = "it tells of true trips"
    return settled.plain(), f"{settled.text()}\nPrivate     {told}; keep it to yourself"
