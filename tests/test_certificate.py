"""The certificate file: one canonical form, any other is refused; signatures; what it says in odds."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import CASES
from tests.refusals import refusal

from dunnage.collecting.promises import estimates_promise
from dunnage.devices.client import check_task, mechanisms_of
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import MECHANISMS as DEVICES
from dunnage.devices.task import Limits, Purpose, Schedule, Task, Tier
from dunnage.errors import CheckFailed, ParameterError
from dunnage.exact import exact
from dunnage.mechanisms import MECHANISMS
from dunnage.model.certificate import (
    MAX_CERTIFICATE_BYTES,
    Certificate,
    RowMeasures,
    SpendStatement,
    canonical,
    certify,
    composition_rule,
    load_private_key,
    load_public_key,
    load_public_keys,
    load_revoked,
    meaning,
    odds,
)
from dunnage.model.guarantees import (
    UNBOUNDED,
    ApproximateDP,
    Basis,
    Guarantee,
    KAnonymity,
    LocalDP,
    Loss,
    MetricLocalDP,
    Neighbours,
    Promise,
    PureDP,
    WithinCluster,
)
from dunnage.text import percent_at_least, percent_at_most


def promise_of(guarantee: Guarantee, basis: Basis = Basis.PROVED, **more: Any) -> Promise:
    return Promise(guarantee=guarantee, basis=basis, mechanism={"name": "test"}, **more)


def made(**changes: Any) -> Certificate:
    """A small certificate; changes replace fields of its body."""
    certificate = certify(
        promise_of(KAnonymity(k=5, protects="package")),
        kind="rows",
        dataset="pärcels",
        period="2026-11",
        attributes=[{"name": "weight", "role": "quasi-identifier"}],
        measures=RowMeasures(records=10),
        spend=SpendStatement(id="ab" * 16, at="2026-11-15T00:00:00Z"),
        composed={"total": "none"},
    ).with_files({"data.csv": "0" * 64})
    return Certificate.model_validate({**certificate.plain(), **changes})


def bytes_of(body: dict[str, Any]) -> bytes:
    """Write whatever a body says, with the digest that fits it."""
    return canonical({**body, "digest": hashlib.sha256(canonical(body)).hexdigest()})


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    key = Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_a_certificate_comes_back_from_its_bytes() -> None:
    certificate = made()
    again = Certificate.from_bytes(certificate.to_bytes())
    assert again == certificate
    assert again.digest == certificate.digest
    assert again.guarantee == KAnonymity(k=5, protects="package")
    assert again.basis is Basis.PROVED
    assert "pärcels".encode() in certificate.to_bytes()


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """An Ed25519 key pair as PEM files."""
    return write_keys(tmp_path, "key")


def not_read(data: bytes) -> str:
    """Check that these bytes are no certificate, and give the message."""
    message = str(refusal(CheckFailed, lambda: Certificate.from_bytes(data).check_signature()))
    assert message.startswith("certificate.json: ")
    return message


def test_every_flipped_bit_of_a_signed_certificate_is_seen(keys: tuple[Path, Path]) -> None:
    data = made().signed(keys[0]).to_bytes()
    Certificate.from_bytes(data).check_signature()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            not_read(bytes(flipped))


def test_whatever_is_no_certificate_is_a_failed_check() -> None:
    data = made().to_bytes()
    for length in range(len(data)):
        not_read(data[:length])
    for more in (b"\n", b" ", b"{}", b"\0", data):
        not_read(data + more)
    twice = data.replace(b'"basis": "proved",', b'"basis": "proved",\n  "basis": "proved",')
    for other in (twice, json.dumps(json.loads(data)).encode()):  # the same content in another layout
        not_read(other)
    no_json = [b"null", b"[]", b'"text"', b"{", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 200_000, b'{"a":' * 100_000]
    formats = [b'{"format": %s}' % value for value in (b"NaN", b"2", b"true", b"1.0", b'"1"', b'1, "format": 1')]
    values = (b"Infinity", b"1e999", b'"\\ud800"', b"9" * 5000, b"[" * 700 + b"]" * 700)
    for content in (*no_json, *formats, *(b'{"format": 1, "x": %s}' % value for value in values)):
        not_read(content)
    not_read(b" " * (MAX_CERTIFICATE_BYTES + 1))


def test_missing_and_malformed_fields_are_failed_checks() -> None:
    plain = made().plain()
    for name in plain:
        body = bytes_of({key: value for key, value in plain.items() if key != name})
        if name == "period":
            Certificate.from_bytes(body)
        else:
            assert name in not_read(body)
    package, trip = {"k": 5, "protects": "package"}, {"protects": "trip", "neighbours": "add-remove"}
    for name, values in {
        "guarantee": [
            {"model": "k-anonymity", **package, "k": 1},
            {"model": ["k-anonymity"], **package},
            {"model": "perfect"},
            {"model": "dp", "epsilon": "x", **trip},
        ],
        "basis": ["certain"],
        "holds": [{"model": "none"}],
        "attributes": [
            [["weight"]],
            [{"name": "weight", "role": None}],
            [{"name": "weight", "role": "public", "domain": "all"}],
        ],
        "files": [{"data.csv": 5}],
        "meaning": [{"sentences": "none", "odds": []}],
        "spend": [{"id": 7, "at": "now"}],
    }.items():
        for value in values:
            not_read(bytes_of({**plain, name: value}))


def test_signatures(keys: tuple[Path, Path], tmp_path: Path) -> None:
    ours, other = load_public_key(keys[1]), load_public_key(write_keys(tmp_path, "other")[1])
    signed = made().signed(keys[0])
    told = [signed.check_signature([ours]), signed.check_signature(), made().check_signature()]
    assert len(set(told)) == 3
    refusal(CheckFailed, signed.check_signature, [other])
    refusal(CheckFailed, made().check_signature, [ours])
    borrowed = made(dataset="other").model_copy(update={"signature": signed.signature})
    refusal(CheckFailed, borrowed.check_signature, [ours])
    assert signed.with_files({}).signature is None, "new files take the signature away"
    assert signed.signature is not None
    signature = signed.signature.plain()
    changed = {"value": signature["value"].upper()}, {"by": "me"}, {"value": signature["value"][:-2]}
    forms = [{**signature, **change} for change in (*changed, {"algorithm": "ed448"})]
    for form in (*forms, None, {}, [], "x", 5, {"value": 5}, [["a", "b"]], True):
        not_read(canonical({**signed.plain(), "digest": signed.digest, "signature": form}))


def test_several_signers_and_revoked_ones(keys: tuple[Path, Path], tmp_path: Path) -> None:
    both, revoked = tmp_path / "both.pem", tmp_path / "revoked.txt"
    other = write_keys(tmp_path, "other")[1]
    both.write_bytes(other.read_bytes() + b"a remark\n" + keys[1].read_bytes())
    ours, theirs = load_public_key(keys[1]), load_public_key(other)
    assert load_public_keys([both]) == load_public_keys([other, keys[1]]) == [theirs, ours]
    signed = made().signed(keys[0])
    assert ours.hex() in signed.check_signature([theirs, ours])
    for content in (f"# lost\n{theirs.hex()}\n\n{ours.hex()} 2026-11-16 stolen\n", both.read_text()):
        revoked.write_text(content)
        assert load_revoked(revoked) == [theirs, ours]
    for trusted in ([], [ours], [theirs, ours]):
        refusal(CheckFailed, signed.check_signature, trusted, [ours])
        assert signed.check_signature(trusted, [theirs])
    for wrong in (ours.hex()[:-1], ours.hex().upper(), "stolen", "\0"):
        revoked.write_text(wrong)
        refusal(ParameterError, load_revoked, revoked)
    refusal(ParameterError, load_public_keys, [tmp_path / "missing.pem"])


@pytest.mark.skipif(os.name != "posix", reason="modes mean nothing elsewhere")
def test_a_signing_key_that_others_can_read_is_refused(keys: tuple[Path, Path]) -> None:
    for mode in (0o644, 0o640, 0o604, 0o620):
        keys[0].chmod(mode)
        assert "chmod 600" in str(refusal(ParameterError, made().signed, keys[0]))
    keys[0].chmod(0o400)
    made().signed(keys[0])


def test_other_keys_are_refused(keys: tuple[Path, Path], tmp_path: Path) -> None:
    rsa, ed25519 = generate_private_key(65537, 2048), Ed25519PrivateKey.generate()
    for name, content in {
        "empty.pem": b"",
        "garbage.pem": random.Random(1).randbytes(500),
        "text.pem": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "rsa.pem": rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "rsa.pub.pem": rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "locked.pem": ed25519.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
        "raw": ed25519.private_bytes_raw(),
    }.items():
        (tmp_path / name).write_bytes(content)
        for load in (load_private_key, load_public_key):
            assert "openssl" in str(refusal(ParameterError, load, tmp_path / name)), name
    for load, wrong in ((load_private_key, keys[1]), (load_public_key, keys[0])):
        for path in (wrong, tmp_path, tmp_path / "missing.pem"):
            refusal(ParameterError, load, path)


def test_odds_round_up_and_never_exceed_certainty() -> None:
    rows = odds(Loss(Fraction(1)))
    assert [row.at_most for row in rows] == [0.0268, 0.232, 0.7311]
    assert [row.at_most for row in odds(Loss(Fraction(5000)))] == [1.0, 1.0, 1.0]
    assert odds(UNBOUNDED) == []
    approximate = odds(Loss(Fraction(1), Fraction(1, 10)))
    assert all(row.right_guess_at_most >= max(row.before, 1 - row.before) for row in approximate)


def printed_bound(sentence: str) -> Fraction:
    return Fraction(re.findall(r"at most ([\d.]+) %", sentence)[-1]) / 100


def test_no_printed_probability_is_below_its_bound() -> None:
    """All k to 1,000 and all epsilons to 20 in steps of 0.01, against 60 digits; and no more than a digit above it."""
    for k in range(2, 1001):
        said = meaning(promise_of(KAnonymity(k=k, protects="parcel")))
        (row,) = said.odds
        assert Fraction(1, k) <= printed_bound(said.sentences[0]) <= Fraction(101, 100 * k)
        assert Fraction(1, k) <= Fraction(str(row.right_at_most)) < Fraction(1, k) + Fraction(1, 10_000)
    context = Context(prec=60)
    for step in range(1, 2001):
        epsilon = Fraction(step, 100)
        growth = Fraction(context.exp(Decimal(step) / 100))
        for delta in (Fraction(0), Fraction(1, 10**6), Fraction(1, 7)):
            for row in odds(Loss(epsilon, delta)):
                prior = Fraction(str(row.before))
                after = prior * growth / (1 - prior + prior * growth)
                stated = row.at_most
                if delta:
                    after = max(1 - (1 - delta) / (1 + growth), *(1 - p * (1 - delta) for p in (prior, 1 - prior)))
                    stated = row.right_guess_at_most
                assert after <= printed_bound(row.sentence) <= min(Fraction(101, 100) * after, 1)
                assert after <= Fraction(str(stated)) <= min(after + Fraction(1, 10_000), 1)


@settings(max_examples=300)
@given(st.fractions(0, 1, max_denominator=10**12))
def test_printed_bounds_stay_bounds(share: Fraction) -> None:
    for number in (share, float(share)):
        above, below = (write(number) for write in (percent_at_most, percent_at_least))
        value = exact(number)
        assert Fraction(below.removesuffix(" %")) / 100 <= value <= Fraction(above.removesuffix(" %")) / 100
    assert (percent_at_most(1), percent_at_least(1), percent_at_most(0.2)) == ("100 %", "100 %", "20 %")
    assert (percent_at_most(0.99999), percent_at_least(0.99999)) == ("99.999 %", "99.9 %")


def test_meaning_and_composition_speak_of_what_holds() -> None:
    one = {"epsilon": Fraction(1), "protects": "trip", "neighbours": Neighbours.ADD_REMOVE}
    dp, cluster = PureDP(**one), WithinCluster(**one, clusters="weight")
    assert all(number in meaning(promise_of(dp)).odds[1].sentence for number in ("10 %", "23.2 %"))
    assert meaning(promise_of(dp, Basis.VOID, why="seeded")).odds == []
    unproved = meaning(promise_of(dp, Basis.CLAIMED, why="no proof"))
    claimed = meaning(promise_of(dp, Basis.CLAIMED, holds=cluster, why="only there"))
    assert unproved.odds == [] != meaning(promise_of(dp)).odds
    assert len({meaning(promise_of(dp)).sentences[0], unproved.sentences[0], claimed.sentences[0]}) == 3
    assert claimed.sentences[0] == meaning(promise_of(cluster)).sentences[0]
    assert meaning(promise_of(KAnonymity(k=3, protects="x"))).odds[0].right_at_most == 0.3334
    rules = [composition_rule(of) for of in (dp, ApproximateDP(**one, delta=Fraction(0)), LocalDP(**one))]
    others = [composition_rule(of) for of in (KAnonymity(k=5, protects="x"), MetricLocalDP(**one, distance="km"))]
    assert len({*rules, *others}) == len({*others}) + len({*rules})


ROOT = Path(__file__).parent.parent
SPEED = Quantity(name="speed", low=0, high=120)
GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
VARIANTS: list[dict[str, Any]] = [
    *({"name": case.name, **case.parameters} for case in CASES),
    *({"name": "local-numeric", "as_published": published} for published in (False, True)),
    *({"name": "local-location", "method": method} for method in ("auto", "planar")),
    {"name": "local-location", "area_in_clear": True},
    {"name": "local-location", "area_in_clear": True, "as_published": True},
    {"name": "local-trajectory", "method": "auto"},
    {"name": "local-trajectory", "method": "qlp", "as_published": True},
]


def notes_of(variant: dict[str, Any]) -> tuple[str, ...]:
    parameters = {name: value for name, value in variant.items() if name != "name"}
    if variant["name"] in MECHANISMS:
        return tuple(f"docs/proofs/{note}" for note in MECHANISMS[variant["name"]](**parameters).notes())
    kind = DEVICES[variant["name"]]
    subject: dict[str, Any] = {"quantities": (SPEED,)} if kind.subject == "quantities" else {"grid": GRID}
    steps = {"steps": 2} if kind.num_steps[0] > 1 else {}
    sections = kind(epsilon=1, **subject, **steps, **parameters).promise().to_dict()["proof"]["sections"]
    return tuple(sections)


def test_every_variant_has_a_note_that_speaks_of_it() -> None:
    assert {*MECHANISMS, *DEVICES} == {variant["name"] for variant in VARIANTS}
    for mechanism in VARIANTS:
        notes = notes_of(mechanism)
        assert notes
        texts = [(ROOT / note.partition("#")[0]).read_text() for note in notes]
        assert any(mechanism["name"] in text for text in texts)
        for note, text in zip(notes, texts, strict=True):
            headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
            words = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert note.partition("#")[2] in words
        if mechanism.get("as_published"):
            assert any("published" in text for text in texts)
    different = {variant["name"] for variant in VARIANTS if variant.get("as_published")}
    for name in different - {"noisy-counts", "local-numeric"}:  # whose one section holds both
        forms = sorted((of for of in VARIANTS if of["name"] == name), key=lambda of: of.get("as_published", False))
        assert notes_of(forms[-1]) != notes_of(forms[0])


def test_estimates_have_the_notes_of_their_purposes() -> None:
    tiers = (Tier(name="all", epsilon="0.1"),)
    numbers = Purpose(name="b", mechanism="local-numeric", tiers=tiers, quantities=(SPEED,))
    places = Purpose(name="a", mechanism="local-location", tiers=tiers, grid=GRID, parameters={"method": "planar"})

    def notes(*purposes: Purpose) -> tuple[str, ...]:
        task = Task(dataset="fleet", purposes=purposes, schedule=Schedule(), limits=Limits(lifetime=365))
        losses, mechanisms = check_task(task), mechanisms_of(task)
        promise = estimates_promise(task, losses, mechanisms, confidence=0.95, combine="auto", rules=(), verdicts={})
        return promise.notes

    assert notes(numbers, places)[0] == "local-location.md#the-planar-law"
    assert notes(numbers, places)[-1].startswith("local-loss-over-time.md")
    assert notes(numbers, places) == notes(places, numbers)


def test_a_promise_names_its_note_and_its_digest_does_not_change_with_it() -> None:
    known = replace(promise_of(KAnonymity(k=5, protects="package")), notes=("partition.md#guarantee",))
    assert known.to_dict()["proof"]["sections"] == ["docs/proofs/partition.md#guarantee"]
    assert "proof" not in promise_of(KAnonymity(k=5, protects="package")).to_dict()
    plain = {name: value for name, value in known.to_dict().items() if name != "proof"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    assert known.digest() == hashlib.sha256(text.encode()).hexdigest()
