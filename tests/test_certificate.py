"""The certificate file: one canonical form, any other is refused; signatures; what it says in odds."""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import replace
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

from dunnage.collecting.promises import estimates_promise
from dunnage.devices.client import check_task, mechanisms_of
from dunnage.devices.subjects import Grid, Quantity
from dunnage.devices.task import MECHANISMS as DEVICES
from dunnage.devices.task import Limits, Purpose, Schedule, Task, Tier
from dunnage.errors import CheckFailed, ParameterError
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


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    """An Ed25519 key pair as PEM files."""
    return write_keys(tmp_path, "key")


def write_keys(folder: Path, name: str) -> tuple[Path, Path]:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    key = Ed25519PrivateKey.generate()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
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


def test_every_flipped_bit_of_a_signed_certificate_is_seen(keys: tuple[Path, Path]) -> None:
    data = made().signed(keys[0]).to_bytes()
    Certificate.from_bytes(data).check_signature(None)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(CheckFailed):
                Certificate.from_bytes(bytes(flipped)).check_signature(None)


def test_every_truncation_and_every_longer_file_is_seen() -> None:
    data = made().to_bytes()
    for length in range(len(data)):
        with pytest.raises(CheckFailed):
            Certificate.from_bytes(data[:length])
    for more in (b"\n", b" ", b"{}", b"\0", data):
        with pytest.raises(CheckFailed):
            Certificate.from_bytes(data + more)


NO_CERTIFICATES = [
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b"\xef\xbb\xbf{}",
    b"[" * 200_000,
    b'{"a":' * 100_000,
]
NO_CERTIFICATES += [b'{"format": %s}' % value for value in (b"NaN", b"2", b"true", b"1.0", b'"1"', b'1, "format": 1')]
NO_CERTIFICATES += [
    b'{"format": 1, "x": %s}' % value
    for value in (b"Infinity", b"1e999", b'"\\ud800"', b"9" * 5000, b"[" * 700 + b"]" * 700)
]
NO_CERTIFICATES.append(b" " * (MAX_CERTIFICATE_BYTES + 1))


def test_whatever_is_no_certificate_is_a_failed_check() -> None:
    for data in NO_CERTIFICATES:
        with pytest.raises(CheckFailed, match=r"^certificate\.json: "):
            Certificate.from_bytes(data)


def test_the_same_content_in_another_layout_is_seen() -> None:
    data = made().to_bytes()
    twice = data.replace(b'"basis": "proved",', b'"basis": "proved",\n  "basis": "proved",')
    for other in (twice, json.dumps(json.loads(data)).encode()):
        with pytest.raises(CheckFailed, match="canonical"):
            Certificate.from_bytes(other)


def test_a_missing_field_is_named() -> None:
    for name in made().plain():
        body = {key: value for key, value in made().plain().items() if key != name}
        if name == "period":
            Certificate.from_bytes(bytes_of(body))
            continue
        with pytest.raises(CheckFailed, match=name):
            Certificate.from_bytes(bytes_of(body))


@pytest.mark.parametrize(
    "changes",
    [
        {"guarantee": {"model": "k-anonymity", "k": 1, "protects": "package"}},
        {"guarantee": {"model": ["k-anonymity"], "k": 5, "protects": "package"}},
        {"guarantee": {"model": "perfect"}},
        {"guarantee": {"model": "dp", "epsilon": "x", "protects": "trip", "neighbours": "add-remove"}},
        {"basis": "certain"},
        {"holds": {"model": "none"}},
        {"attributes": [["weight"]]},
        {"attributes": [{"name": "weight", "role": None}]},
        {"attributes": [{"name": "weight", "role": "public", "domain": "all"}]},
        {"files": {"data.csv": 5}},
        {"meaning": {"sentences": "none", "odds": []}},
        {"spend": {"id": 7, "at": "now"}},
    ],
)
def test_a_malformed_field_is_a_failed_check(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match="malformed"):
        Certificate.from_bytes(bytes_of({**made().plain(), **changes}))


def test_a_signature_in_another_form_is_a_failed_check(keys: tuple[Path, Path]) -> None:
    signed = made().signed(keys[0])
    assert signed.signature is not None
    signature = signed.signature.plain()
    other = {"value": signature["value"].upper()}, {"by": "me"}, {"value": signature["value"][:-2]}
    forms = [{**signature, **change} for change in (*other, {"algorithm": "ed448"})]
    for form in (*forms, None, {}, [], "x", 5, {"value": 5}, [["a", "b"]], True):
        data = canonical({**signed.plain(), "digest": signed.digest, "signature": form})
        with pytest.raises(CheckFailed):
            Certificate.from_bytes(data).check_signature(None)


def test_a_signature_is_checked_against_the_key_given(keys: tuple[Path, Path], tmp_path: Path) -> None:
    _, other = write_keys(tmp_path, "other")
    signed = made().signed(keys[0])
    assert "by the key given" in signed.check_signature(load_public_key(keys[1]))
    assert "by whom is not checked" in signed.check_signature(None)
    assert "not signed" in made().check_signature(None)
    with pytest.raises(CheckFailed, match="another key"):
        signed.check_signature(load_public_key(other))
    with pytest.raises(CheckFailed, match="not signed"):
        made().check_signature(load_public_key(keys[1]))


def test_a_signature_of_another_certificate_does_not_fit(keys: tuple[Path, Path]) -> None:
    borrowed = made(dataset="other").model_copy(update={"signature": made().signed(keys[0]).signature})
    with pytest.raises(CheckFailed, match="does not fit"):
        borrowed.check_signature(load_public_key(keys[1]))


def test_new_files_take_the_signature_away(keys: tuple[Path, Path]) -> None:
    assert made().signed(keys[0]).with_files({}).signature is None


def unusable_keys(folder: Path) -> list[Path]:
    """Files that are no plain Ed25519 key."""
    rsa = generate_private_key(65537, 2048)
    ed25519 = Ed25519PrivateKey.generate()
    contents = {
        "empty.pem": b"",
        "garbage.pem": random.Random(1).randbytes(500),
        "text.pem": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "rsa.pem": rsa.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "rsa.pub.pem": rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "locked.pem": ed25519.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
        "raw": ed25519.private_bytes_raw(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [*(folder / name for name in contents), folder, folder / "missing.pem"]


def test_other_keys_are_refused_with_a_remedy(tmp_path: Path) -> None:
    for path in unusable_keys(tmp_path):
        for load in (load_private_key, load_public_key):
            with pytest.raises(ParameterError, match=r"openssl|cannot be read"):
                load(path)


def test_the_two_halves_of_a_pair_are_not_mixed_up(keys: tuple[Path, Path]) -> None:
    with pytest.raises(ParameterError, match="private key"):
        load_private_key(keys[1])
    with pytest.raises(ParameterError, match="public key"):
        load_public_key(keys[0])


def test_odds_round_up_and_never_exceed_certainty() -> None:
    rows = odds(Loss(Fraction(1)))
    assert [row.at_most for row in rows] == [0.0268, 0.232, 0.7311]
    assert [row.at_most for row in odds(Loss(Fraction(5000)))] == [1.0, 1.0, 1.0]
    assert odds(UNBOUNDED) == []
    approximate = odds(Loss(Fraction(1), Fraction(1, 10)))
    assert all(row.right_guess_at_most >= max(row.before, 1 - row.before) for row in approximate)


NEIGHBOURS = Neighbours.ADD_REMOVE


def test_meaning_speaks_of_what_holds() -> None:
    dp = PureDP(epsilon=Fraction(1), protects="trip", neighbours=NEIGHBOURS)
    cluster = WithinCluster(epsilon=Fraction(1), protects="trip", neighbours=NEIGHBOURS, clusters="weight")
    assert meaning(promise_of(dp)).odds[1].sentence == "a 10 % suspicion becomes at most 23.2 %"
    assert meaning(promise_of(dp, Basis.VOID, why="seeded")).odds == []
    assert "No bound is proved" in meaning(promise_of(dp, Basis.CLAIMED, why="no proof")).sentences[0]
    claimed = meaning(promise_of(dp, Basis.CLAIMED, holds=cluster, why="only there"))
    assert "same cluster" in claimed.sentences[0]
    assert meaning(promise_of(KAnonymity(k=3, protects="x"))).odds[0].right_at_most == 0.3334


def test_composition_rules_name_what_adds_up() -> None:
    one = {"epsilon": Fraction(1), "protects": "x", "neighbours": NEIGHBOURS}
    for guarantee, word in (
        (KAnonymity(k=5, protects="x"), "does not compose"),
        (PureDP(**one), "add up"),
        (ApproximateDP(**one, delta=Fraction(0)), "add up"),
        (LocalDP(**one), "add up"),
        (MetricLocalDP(**one, distance="km"), "same scope"),
    ):
        assert word in composition_rule(guarantee)


# Proof notes

ROOT = Path(__file__).parent.parent
SPEED = Quantity(name="speed", low=0, high=120)
GRID = Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=3)
SAMPLE = {"k": 2, "beta": "0.5", "epsilon_choice": 1}
VARIANTS: list[dict[str, Any]] = [
    {"name": "partition", "k": 5},
    {"name": "full-domain", "k": 5},
    {"name": "utility-clusters", "k": 5, "method": "published-greedy"},
    {"name": "noisy-values", "epsilon": 1},
    {"name": "noisy-clusters", "epsilon": 1, "borders": [1]},
    {"name": "noisy-clusters", "epsilon": 1, "quantiles": ["0.5"]},
    {"name": "noisy-clusters", "epsilon": 1, "quantiles": ["0.5"], "as_published": True},
    *({"name": "sampled-lattice", **SAMPLE, "left_out": left_out} for left_out in ("drop", "pool")),
    {"name": "sampled-lattice", **SAMPLE, "left_out": "noisy", "left_out_epsilon": 1},
    {"name": "sampled-lattice", **SAMPLE, "as_published": True},
    *({"name": "noisy-counts", "epsilon": 1, "as_published": published} for published in (False, True)),
    *({"name": "hierarchical-counts", "epsilon": 1, "as_published": published} for published in (False, True)),
    *({"name": "constrained-counts", "epsilon": 1, "as_published": published} for published in (False, True)),
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


def test_every_mechanism_is_among_the_variants() -> None:
    assert {*MECHANISMS, *DEVICES} == {variant["name"] for variant in VARIANTS}


def test_every_variant_has_a_note_that_speaks_of_it() -> None:
    for mechanism in VARIANTS:
        check_notes(mechanism)


def check_notes(mechanism: dict[str, Any]) -> None:
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


def test_published_forms_have_notes_of_their_own() -> None:
    different = {variant["name"] for variant in VARIANTS if variant.get("as_published")}
    for name in different - {"noisy-counts", "local-numeric"}:  # whose one section holds both
        forms = [notes_of(variant) for variant in VARIANTS if variant["name"] == name]
        assert forms[-1] != forms[0]


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
