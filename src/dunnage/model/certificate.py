# SPDX-License-Identifier: Apache-2.0
"""Certificate: the public statement that travels with a release.

The file is byte for byte its canonical form (sorted keys, two spaces, one final newline). ``digest`` is the SHA-256 of
that form without ``digest`` and ``signature``; ``signature`` signs the digest. Digests detect accidents. Only a
signature, checked against a key you trust, detects forgery.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import JsonValue, PlainSerializer, PlainValidator, ValidationError, WithJsonSchema

from dunnage._version import __version__
from dunnage.errors import CheckFailed, ParameterError
from dunnage.model.documents import M, Model, Software, canonical
from dunnage.model.domains import Stops
from dunnage.model.guarantees import (
    COUNTS_PERSONS,
    Basis,
    ConcentratedDP,
    Guarantee,
    KAnonymity,
    LocalDP,
    Loss,
    MetricLocalDP,
    Promise,
    WithinCluster,
    WithinPublishedBorders,
    exp_upper,
    guarantee_from,
)
from dunnage.text import percent_at_most, rounded_percent

FORMAT = 1
MAX_CERTIFICATE_BYTES = 16 << 20
MAX_DIGITS = 128  # of an exact number that is written as text
# Predicted errors of all sums of a level, compared with those of an empty table. Trips may be spread more thinly than
# predicted, so a level is called noise somewhat below 1. Good is what a planner may use as it is: off by a fifth.
NOISE_ERROR, GOOD_ERROR = 0.8, 0.2
PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))
SIGNED_PREFIX = b"dunnage certificate 1\n"
DIGESTS_SAY = "Digests detect accidents. Only a signature, checked against a key you trust, detects forgery."
PRINTED_FORMS = {  # regular expressions that Python and JavaScript read alike
    "time": r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)",
    "software": r"\d{1,3}(\.\d{1,3}){1,2}((a|b|rc|\.dev|\.post)\d{1,3})?",
    "spend": r"[0-9a-f]{32}",
    "spend by devices": r"allowances of task [0-9a-f]{64}",
    "entry": r"None None|[1-9]\d{0,15} [0-9a-f]{64}",  # versions before 0.2 and devices state none
}
_ALTERED = "It was altered or damaged."

Number = int | float | str  # an exact number in JSON: whole, decimal, or the text "p/q"
JsonObject = dict[str, JsonValue]


def _read_guarantee(value: object) -> Guarantee:
    if isinstance(value, Guarantee):  # made in Python
        return value
    try:
        return guarantee_from(value)  # type: ignore[arg-type]  # refuses anything but a table
    except (KeyError, TypeError, AttributeError):
        raise ParameterError("is not a guarantee that this version knows.") from None


StatedGuarantee = Annotated[
    Guarantee,
    PlainValidator(_read_guarantee),
    PlainSerializer(lambda guarantee: guarantee.to_dict()),
    WithJsonSchema({"type": "object", "required": ["model", "protects"]}),
]
StatedBasis = Annotated[
    Basis,
    PlainValidator(lambda value: Basis(value)),  # from Python 3.12, Pydantic refuses the signature of enums
    PlainSerializer(str),
    WithJsonSchema({"enum": [str(basis) for basis in Basis]}),
]


class AttributeStatement(Model):
    """What is public about one released column."""

    name: str
    role: str
    kind: str | None = None
    domain: JsonObject | None = None
    missing: str | None = None
    outside: str | None = None
    unreadable: str | None = None
    merged: str | None = None
    purpose: str | None = None  # of an estimate: the purpose of the reports it comes from
    window_minutes: int | None = None  # of windows that are described by their labels alone
    num_dates: list[int] | None = None  # number of calendar days behind each label of days

    @property
    def domain_kind(self) -> str:
        """Kind of the public domain; empty if there is none."""
        return str((self.domain or {}).get("kind", ""))

    @property
    def unit(self) -> str:
        return str((self.domain or {}).get("unit", ""))

    @property
    def clock(self) -> bool:
        """Whether values are minutes of a service day."""
        return (self.domain or {}).get("clock") is True


class ClassSize(Model):
    """Sizes of classes."""

    smallest: int
    mean: float
    largest: int


class Suppressed(Model):
    """Records that are not released."""

    count: int
    share: float


class Persons(Model):
    """Number of persons in the class with the fewest."""

    smallest: int


class Risks(Model):
    """Risks, by the usual names of the field."""

    prosecutor_highest: float
    prosecutor_mean: float
    marketer: float
    journalist: str


class RowLoss(Model):
    """What generalisation lost, and the metric."""

    metric: str
    sum: float
    total: float
    attributes: dict[str, float]


class Importance(Model):
    """The weight of each attribute in the distortion."""

    factors: dict[str, float]
    weights: dict[str, float]


class Distortion(Model):
    """Distortion from generalisation and from suppression."""

    generalisation: float
    suppression: float


class Diversity(Model):
    """How much classes reveal about a sensitive column."""

    l: int  # noqa: E741
    t: float
    distance: str


class NoiseCell(Model):
    """The law of the noise on one range of a number."""

    lower: Number
    upper: Number
    law: str
    epsilon: Number
    confidence: Number
    radius: Number
    coverage: float


class StatedConfidence(Model):
    """The stated confidence of intervals."""

    confidence: Number


class SlotGroup(Model):
    """The profile of the records with one combination of public values."""

    records: int  # how many there are, or are expected to be
    intervals: int  # counts with noise
    chains: int  # of intervals in which each size includes the next
    tube: Number = 0  # share of the loss that keeps all tails small together
    margin: int  # by how many slots the tails are raised at most


class SlotMeasures(Model):
    """A profile of sizes, as slots."""

    slots: int
    risk: Number  # largest probability that some record has no slot of at least its size
    records_public: bool
    groups: list[SlotGroup]  # in the order of the rows


class RowMeasures(Model):
    """Public figures of released rows."""

    records: int
    k_asked: int | None = None
    k_reached: int | None = None
    persons: Persons | None = None
    classes: int | None = None
    class_size: ClassSize | None = None
    suppressed: Suppressed | None = None
    risks: Risks | None = None
    importance: Importance | None = None
    distortion: Distortion | None = None
    k_chosen: int | None = None
    limits_chosen: dict[str, Number] | None = None  # largest widths of classes that the search chose, by attribute
    loss: RowLoss | None = None
    levels: dict[str, int] | None = None
    sensitive: dict[str, Diversity] | None = None
    noise: dict[str, list[NoiseCell]] | None = None
    borders: dict[str, list[Number]] | None = None
    published_intervals: dict[str, StatedConfidence] | None = None
    slots: SlotMeasures | None = None

    @property
    def num_suppressed(self) -> int:
        """Number of suppressed records, if it is public."""
        return self.suppressed.count if self.suppressed is not None else 0

    @property
    def noisy(self) -> bool:
        return self.noise is not None or self.published_intervals is not None


class TripLoss(Model):
    """What one trip and one rider lose; None if there is no bound."""

    trip: Number
    rider: Number | None


class Correction(Model):
    """Noisy sums of the trips that the bound on a rider's trips keeps and drops, and what counts were divided by."""

    total_max: int  # trips of one rider that change both sums together, at most
    epsilon: Number
    scale: Number
    law: str
    kept: int
    dropped: int
    share: float | None  # of trips that are kept; None if noise drowns the sums, and counts are not corrected


class StatedContribution(Model):
    """How many trips of one rider were counted."""

    max: int
    per: Literal["day", "period"]
    days: int | None
    per_cell: int | None = None
    correction: Correction | None = None


class CountNoise(Model):
    """Noise on every single count."""

    scale: Number
    law: str


class FeatureNoise(Model):
    """Noise on the sums of one feature."""

    feature: str
    groups: int
    epsilon: Number | None = None  # its part of epsilon or, with Gaussian noise, of rho
    rho: Number | None = None
    scale: Number  # of Gaussian noise the variance
    law: str


class LevelError(Model):
    """The predicted error of the sums of a table of counts at one level, from public facts."""

    level: str  # which sums, in words
    sums: int  # how many there are
    trips: float  # expected trips of a sum that has any
    error: float  # all errors together, as a share of all trips: 1 for an empty table

    @property
    def off(self) -> float:
        """By how many trips a sum that has any is off, on average; invented trips elsewhere count too."""
        return self.error * self.trips

    @property
    def verdict(self) -> Literal["good", "rough", "noise"]:
        return "noise" if self.error >= NOISE_ERROR else "rough" if self.error > GOOD_ERROR else "good"

    @property
    def is_noise(self) -> bool:
        return self.verdict == "noise"


class ExpectedError(Model):
    """How useful a table of counts is predicted to be, from public facts alone."""

    trips: int  # what the policy expects: trips, or records of another unit
    levels: list[LevelError]  # the released types first
    hours: list[str] | None = None  # the part of the service day that was predicted; None if all of it
    unit: str | None = None  # what is counted; None if trips are

    @property
    def noun(self) -> str:
        return self.unit or "trip"

    @property
    def is_noise(self) -> bool:
        """Whether the released counts are hardly better than an empty table."""
        return self.levels[0].is_noise

    @property
    def finest(self) -> LevelError:
        """Single counts, which simulations use: planners may look at other sums first."""
        return max(self.levels, key=lambda level: level.sums)


class CountMeasures(Model):
    """Public figures of released counts."""

    trips: int  # in a table of categories: records, and so for all figures
    cells: int
    cells_with_trips: int
    loss: TripLoss
    contribution: StatedContribution | None = None
    noise: CountNoise | None = None
    features: list[FeatureNoise] | None = None
    kkt_residual: float | None = None
    expected: ExpectedError | None = None

    @property
    def correction(self) -> Correction | None:
        return None if self.contribution is None else self.contribution.correction


class TierLoss(Model):
    """What a vehicle of a tier gives away with each report, slot and day; None if there is no bound."""

    reports: dict[str, Number | None]
    slot: Number | None
    day: Number | None


class EstimateLoss(Model):
    """What vehicles give away, by tier and over their lifetime."""

    tiers: dict[str, TierLoss]
    lifetime: Number | None


class CombinedTiers(Model):
    """How tiers were combined, the p-value of the test that they are equal, and the number of reports with a value."""

    rule: str
    p_value: float | None = None
    reports: int | None = None


class ShuffledLoss(Model):
    """The central loss of one report among all of its purpose and tier, in random order and without senders."""

    delta: float
    epsilon: dict[str, dict[str, float]]  # by purpose and tier
    basis: Literal["claimed"]
    trust: str  # what it needs besides the devices


class EstimateMeasures(Model):
    """Public figures of released estimates."""

    task: JsonObject
    task_digest: str
    reports: dict[str, dict[str, int]]
    lines: int
    combined: dict[str, dict[str, CombinedTiers]]
    loss: EstimateLoss
    maps: dict[str, str] | None = None
    paths: dict[str, dict[str, int]] | None = None
    left_out: dict[str, int] | None = None
    senders: Literal["gateway", "token", "unlinkable"] | None = None  # who sent the reports to a collector
    shuffled: ShuffledLoss | None = None  # what follows where nobody can tell who sent a report


class OddsRow(Model):
    """An upper bound on what a suspicion can become, or on how often an attack succeeds."""

    before: float | None = None
    at_most: float | None = None
    right_guess_at_most: float | None = None
    sentence: str | None = None
    attack: str | None = None
    right_at_most: float | None = None


class Meaning(Model):
    """What a promise means, in sentences and odds."""

    sentences: list[str]
    odds: list[OddsRow]


class ProofNote(Model):
    """Where the guarantee is proved."""

    project: str
    version: str
    sections: list[str]

    def __str__(self) -> str:
        return f"{', '.join(self.sections)} ({self.project} {self.version})"


class SpendStatement(Model):
    """The entry of the ledger that paid for the release."""

    id: str
    at: str
    number: int | None = None  # of the entry, and its hash: the ledger that paid must have both
    head: str | None = None


class Total(Model):
    """What releases lose together."""

    epsilon: Number
    delta: Number


class Composition(Model):
    """How the guarantee composes, and what all releases so far lose together."""

    rule: str
    neighbours: str | None = None
    total: Total | Literal["none"] | None = None
    total_per_period: Total | Literal["none"] | None = None
    total_per_period_assumes: str | None = None


class Signature(Model):
    """Public key and signature."""

    algorithm: str
    public_key: str
    value: str

    @classmethod
    def of(cls, key: str | os.PathLike[str], message: bytes) -> Signature:
        """Sign with an Ed25519 private key (PEM file)."""
        private = load_private_key(key)
        public = private.public_key().public_bytes_raw().hex()
        return cls(algorithm="ed25519", public_key=public, value=private.sign(message).hex())

    def signer(self, message: bytes) -> bytes | None:
        """Return the public key that signed a message; None if the signature is not of this message."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            public, value = bytes.fromhex(self.public_key), bytes.fromhex(self.value)
            # Hex has one canonical form here: lower case.
            if self != Signature(algorithm="ed25519", public_key=public.hex(), value=value.hex()):
                raise ValueError
            Ed25519PublicKey.from_public_bytes(public).verify(value, message)
        except (InvalidSignature, ValueError):
            return None
        return public


class Certificate(Model):
    """What is promised about a release, on which basis, and the digests of its files.

    Its fields are those of ``certificate.json``; ``mechanism`` has the name of the mechanism and all its parameters.
    """

    format: Literal[1]
    kind: str
    dataset: str
    period: str | None = None
    guarantee: StatedGuarantee
    basis: StatedBasis
    mechanism: JsonObject
    assumptions: dict[str, str]
    in_clear: list[str]
    numerics: str
    claim: str | None = None
    why: str | None = None
    warnings: list[str] | None = None
    holds: StatedGuarantee | None = None
    proof: ProofNote | None = None
    attributes: list[AttributeStatement]
    measures: RowMeasures | CountMeasures | EstimateMeasures
    meaning: Meaning
    spend: SpendStatement
    composition: Composition
    software: Software
    time: str
    digests_say: str
    files: dict[str, str]
    signature: Signature | None = None

    def __repr__(self) -> str:
        return f"Certificate({self.dataset!r}, {self.guarantee.model}, {self.basis}, {self.mechanism_name})"

    __str__ = __repr__

    @property
    def mechanism_name(self) -> str:
        return str(self.mechanism.get("name", ""))

    @property
    def rows(self) -> RowMeasures:
        """The figures of released rows; an error for any other kind."""
        return self._measures(RowMeasures)

    @property
    def counts(self) -> CountMeasures:
        """The figures of released counts; an error for any other kind."""
        return self._measures(CountMeasures)

    @property
    def estimates(self) -> EstimateMeasures:
        """The figures of released estimates; an error for any other kind."""
        return self._measures(EstimateMeasures)

    @property
    def counts_trips(self) -> bool:
        """Whether counts are of trips; otherwise they are of combinations of labels."""
        return any(item.kind == Stops.kind for item in self.attributes)

    def _measures(self, kind: type[M]) -> M:
        if not isinstance(self.measures, kind):
            raise CheckFailed("certificate.json: the figures do not belong to its kind of release.")
        return self.measures

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical form, without digest and signature."""
        return hashlib.sha256(canonical(self._unsigned())).hexdigest()

    def _unsigned(self) -> dict[str, object]:
        """Return everything but the signature as plain data: the input of the digest."""
        return {name: value for name, value in self.plain().items() if name != "signature"}

    def with_files(self, files: Mapping[str, str]) -> Certificate:
        return Certificate.model_validate({**self._unsigned(), "files": dict(files)})

    def to_bytes(self) -> bytes:
        return canonical({**self.plain(), "digest": self.digest})

    @classmethod
    def from_bytes(cls, data: bytes) -> Certificate:
        """Read a certificate; anything but the exact canonical form is refused."""
        if len(data) > MAX_CERTIFICATE_BYTES:
            raise CheckFailed("certificate.json: the file is larger than 16 MiB and was not read.")
        try:
            content: Any = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            raise CheckFailed(f"certificate.json: not valid JSON. {_ALTERED}") from None
        # True and 1.0 equal 1 in Python, but they are different files.
        if not isinstance(content, dict) or type(content.get("format")) is not int or content["format"] != FORMAT:
            newer = "Use a newer version of Dunnage."
            raise CheckFailed(f"certificate.json: not a certificate of format {FORMAT}. {newer}")
        digest = content.pop("digest", None)
        body = {name: value for name, value in content.items() if name != "signature"}
        try:
            own_digest = hashlib.sha256(canonical(body)).hexdigest()
            own_bytes = canonical({**content, "digest": digest})
        except (ValueError, RecursionError):  # NaN, half a character, or endless nesting
            raise CheckFailed(f"certificate.json: not in canonical form. {_ALTERED}") from None
        if digest != own_digest:
            raise CheckFailed(f"certificate.json: its own digest does not match. {_ALTERED}")
        if own_bytes != data:
            raise CheckFailed(f"certificate.json: not in canonical form. {_ALTERED}")
        if not all(map(_is_short, _leaves(content))):
            raise CheckFailed("certificate.json: a number has more digits than any that certificates need.")
        try:
            certificate = cls.model_validate(content)
        except ValidationError as error:
            fields = ", ".join(dict.fromkeys(str(item["loc"][0]) for item in error.errors() if item["loc"]))
            raise CheckFailed(f"certificate.json: missing or malformed: {fields}.") from None
        except RecursionError:
            raise CheckFailed("certificate.json: a part is nested too deeply.") from None
        if empty := [name for name in content if content[name] is None]:
            raise CheckFailed(f"certificate.json: missing or malformed: {', '.join(empty)}.")
        if canonical({**certificate.plain(), "digest": digest}) != data:
            raise CheckFailed("certificate.json: a number is not in the form that certificates use.")
        return certificate

    def signed(self, key: str | os.PathLike[str]) -> Certificate:
        """Return the certificate signed with an Ed25519 private key (PEM file)."""
        return self.model_copy(update={"signature": Signature.of(key, SIGNED_PREFIX + self.digest.encode())})

    def check_signature(self, trusted: Collection[bytes] = (), revoked: Collection[bytes] = ()) -> str:
        """Check the signature, by one of the trusted keys if any are given, and say how far it can be trusted."""
        if self.signature is None:
            if trusted:
                raise CheckFailed("certificate.json: not signed, so no key that you gave has signed it.")
            return "not signed: digests alone do not detect forgery"
        public = self.signature.signer(SIGNED_PREFIX + self.digest.encode())
        if public is None:
            raise CheckFailed("certificate.json: the signature does not match the certificate.")
        # Whoever has a stolen key can also write an earlier time into a certificate, so no date excuses a revoked key.
        if public in revoked:
            raise CheckFailed("certificate.json: signed by a key that is revoked.")
        if not trusted:
            return "signed, but the signer was not checked: give --signed-by with a key you trust"
        if public not in trusted:
            raise CheckFailed("certificate.json: signed by a different key from the ones you gave.")
        return "signed by the key you gave" if len(trusted) == 1 else f"signed by {public.hex()}, a key you gave"


def _leaves(content: object) -> Iterator[object]:
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _leaves(part)
    else:
        yield content


def _is_short(leaf: object) -> bool:
    """Return whether a number is short: long ones would be a place to hide something."""
    if isinstance(leaf, str) and re.fullmatch(r"-?\d+(/\d+)?", leaf, re.ASCII):
        return len(leaf) <= MAX_DIGITS
    return not isinstance(leaf, int) or abs(leaf) < 1 << 63


def load_private_key(path: str | os.PathLike[str]) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    needs = (
        "an Ed25519 private key in PEM form without a password. "
        "Make one with: openssl genpkey -algorithm ed25519 -out key.pem"
    )
    key = _pem_key(path, lambda data: load_pem_private_key(data, password=None), Ed25519PrivateKey, needs)
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        raise ParameterError(f"other users can read the signing key {os.fspath(path)}. Make it private: chmod 600.")
    return key


def load_public_keys(paths: Iterable[str | os.PathLike[str]]) -> list[bytes]:
    return [load_public_key(path, block) for path in paths for block in _blocks(path)]


def load_revoked(path: str | os.PathLike[str]) -> list[bytes]:
    """Read a list of revoked keys: PEM blocks, or a line for each key as ``dunnage show`` writes it, with a remark."""
    content = _key_file(path)
    if b"-----BEGIN" in content:
        return load_public_keys([path])
    keys = []
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        text = line.partition("#")[0].split()
        if text and not re.fullmatch("[0-9a-f]{64}", text[0]):
            what = "does not begin with a public key of 64 hexadecimal digits"
            raise ParameterError(f"{os.fspath(path)}: line {number} {what}. dunnage show KEY.pub.pem writes it.")
        keys += [bytes.fromhex(text[0])] if text else []
    return keys


def _blocks(path: str | os.PathLike[str]) -> list[bytes]:
    content, end = _key_file(path), b"-----END PUBLIC KEY-----"
    return [block + end for block in content.split(end)[:-1]] or [content]


def load_public_key(path: str | os.PathLike[str], data: bytes | None = None) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    needs = "an Ed25519 public key in PEM form. Make one with: openssl pkey -in key.pem -pubout -out key.pub.pem"
    raw: bytes = _pem_key(path, load_pem_public_key, Ed25519PublicKey, needs, data).public_bytes_raw()
    return raw


def _key_file(path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise ParameterError(f"{os.fspath(path)} cannot be read: {reason}. Check the path of the key.") from None


def _pem_key(
    path: str | os.PathLike[str], load: Callable[[bytes], Any], kind: type, needs: str, data: bytes | None = None
) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm

    data, key = _key_file(path) if data is None else data, None
    with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load(data)
    if not isinstance(key, kind):
        raise ParameterError(f"{os.fspath(path)}: not {needs}")
    return key


def certify(
    promise: Promise,
    *,
    kind: str,
    dataset: str,
    period: str | None,
    attributes: list[dict[str, Any]],
    measures: RowMeasures | CountMeasures | EstimateMeasures,
    spend: SpendStatement,
    composed: Mapping[str, object],  # What all releases so far lose together
) -> Certificate:
    return Certificate.model_validate(
        {
            "format": FORMAT,
            "kind": kind,
            "dataset": dataset,
            **({"period": period} if period else {}),
            **promise.to_dict(),
            "attributes": attributes,
            "measures": measures,
            "meaning": meaning(promise),
            "spend": spend,
            "composition": {"rule": composition_rule(promise.guarantee), **composed},
            "software": {"dunnage": __version__},
            "time": spend.at,
            "digests_say": DIGESTS_SAY,
            "files": {},
        }
    )


def meaning(promise: Promise) -> Meaning:
    if promise.basis is Basis.VOID:
        return Meaning(sentences=[f"Nothing is promised: {promise.why}."], odds=[])
    proved = promise.guarantee if promise.basis is Basis.PROVED else promise.holds
    if proved is None:
        return Meaning(sentences=[f"No bound is proved: {promise.why}."], odds=[])
    unit = proved.protects
    if not isinstance(proved, KAnonymity):
        scopes: dict[type, str] = {
            WithinCluster: "between values of the same cluster; the cluster of each record is public",
            WithinPublishedBorders: "between values that the published borders do not separate",
            LocalDP: f"between any two values that the device could have, for one {unit}",
            MetricLocalDP: "between two values at distance one",
        }
        replaced = getattr(proved, "neighbours", None) == "replace-one"
        usual = f"whatever the values of one {unit} are" if replaced else f"whether or not one {unit} is in the data"
        loss = Loss(proved.epsilon, getattr(proved, "delta", Fraction(0)))
        return Meaning(sentences=[f"The bound holds {scopes.get(type(proved), usual)}."], odds=odds(loss))
    persons = any(item.name == COUNTS_PERSONS for item in promise.assumptions)
    people = f", of at least {proved.k} different persons" if persons else ""
    counts = "k counts persons, not records. There is no limit on the records that one person has in a class."
    highest = Fraction(1, proved.k)
    sentences = [
        f"Someone who knows the public and generalised values of a {unit} sees at least {proved.k} released records "
        f"that look alike{people}. A guess at its row is right at most {percent_at_most(highest)} of the time "
        f"(1 in {proved.k}).",
        *([counts] if persons else []),
        "It does not limit what can be concluded from values that all records of a class share, from knowing that "
        "a record is absent, or from a second release of the same records.",
    ]
    row = OddsRow(attack="name the row of a known record", right_at_most=_ceiling(highest))
    return Meaning(sentences=sentences, odds=[row])


@lru_cache(maxsize=64)
def odds(loss: Loss) -> list[OddsRow]:
    """Return upper bounds on what a suspicion can become, rounded up."""
    # With delta 0 a row bounds the suspicion itself after seeing the release. With delta above 0 no such bound exists
    # for every outcome; a row then bounds the chance that the attacker's best guess is right.
    if loss.epsilon is None:
        return []
    growth = exp_upper(min(loss.epsilon, Fraction(700)))
    rows = []
    for prior in PRIORS:
        before = float(prior)
        if not loss.delta:
            after = prior / (prior + (1 - prior) / growth)
            sentence = f"a {rounded_percent(before)} suspicion becomes at most {percent_at_most(after)}"
            rows.append(OddsRow(before=before, at_most=_ceiling(after), sentence=sentence))
            continue
        # The best test between "in" and "out" is a corner of the (epsilon, delta) region.
        error = (1 - loss.delta) / (1 + growth)
        right = max(1 - error, 1 - prior * (1 - loss.delta), 1 - (1 - prior) * (1 - loss.delta))
        best = f"the best guess is right at most {percent_at_most(right)} of the time"
        sentence = f"with a {rounded_percent(before)} suspicion, {best}"
        rows.append(OddsRow(before=before, right_guess_at_most=_ceiling(right), sentence=sentence))
    return rows


def _ceiling(probability: Fraction) -> float:
    """Round a probability up to four digits, so that a printed bound is never too small."""
    return min(1.0, math.ceil(probability * 10_000) / 10_000)


def composition_rule(guarantee: Guarantee) -> str:
    if isinstance(guarantee, KAnonymity):
        return "does not compose: after this release the dataset has no differential-privacy total"
    if isinstance(guarantee, WithinPublishedBorders):
        return "does not compose: each release publishes its own borders; never adds to plain epsilon"
    if isinstance(guarantee, WithinCluster | MetricLocalDP):
        return "adds up only with releases of the same scope; never adds to plain epsilon"
    if isinstance(guarantee, ConcentratedDP):
        return "rho adds up over releases about the same unit and neighbours; so do their epsilons and deltas"
    return "the epsilons (and deltas) of releases about the same unit and neighbours add up"
