# SPDX-License-Identifier: Apache-2.0
"""Certificate: the public statement that travels with a release.

The file is byte for byte its canonical form (sorted keys, two spaces, one final newline). ``digest`` is the
SHA-256 of that form without ``digest`` and ``signature``; ``signature`` signs the digest. Digests detect accidents;
only a signature that is checked against a key one trusts detects forgery.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from dunnage._version import __version__
from dunnage.errors import CheckFailed, ParameterError
from dunnage.guarantees import (
    COUNTS_PERSONS,
    Basis,
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
from dunnage.text import rounded_percent as _percent

FORMAT = 1
MOST_CERTIFICATE_BYTES = 16 << 20
PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))
_SIGNED_PREFIX = b"dunnage certificate 1\n"
_DIGESTS_SAY = "Digests detect accidents. Only a signature, checked against a key you trust, detects forgery."
_ALTERED = "It was altered or damaged."

# What readers rely on. A name ending in "?" may be absent; {str: x} is a table of any names; [x] a list of x.
_SHAPE: Mapping[Any, Any] = {
    "format": int,
    "kind": str,
    "dataset": str,
    "period?": str,
    "guarantee": dict,
    "basis": str,
    "mechanism": {"name": str},
    "assumptions": {str: str},
    "in_clear": [str],
    "numerics": str,
    "claim?": str,
    "why?": str,
    "warnings?": [str],
    "holds?": dict,
    "proof?": {"project": str, "version": str, "sections": [str]},
    "attributes": [{"name": str, "role": str, "kind?": str, "domain?": {"kind": str, "unit?": str}}],
    "measures": dict,
    "meaning": {"sentences": [str], "odds": [dict]},
    "spend": {"id": str, "at": str},
    "composition": {"rule": str},
    "software": {"dunnage": str},
    "time": str,
    "digests_say": str,
    "files": {str: str},
}


FIELDS = frozenset(str(name).rstrip("?") for name in _SHAPE)
"""Everything that a certificate may state, besides its digest and signature."""


def canonical(content: Mapping[str, Any]) -> bytes:
    """Write plain data in the one form that is digested and stored.

    Examples
    --------
    >>> print(canonical({"b": 1, "a": 2}).decode(), end="")
    {
      "a": 2,
      "b": 1
    }
    """
    return (json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


@dataclass(frozen=True)
class Certificate:
    """What is promised about a release, on which basis, and the digests of its files.

    Parameters
    ----------
    body
        Everything but digest and signature, as plain data.
    signature
        Public key and signature, if signed.
    """

    body: Mapping[str, Any]
    signature: Mapping[str, str] | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of the canonical body."""
        return hashlib.sha256(canonical(self.body)).hexdigest()

    @property
    def guarantee(self) -> Guarantee:
        """The stated guarantee."""
        return guarantee_from(self.body["guarantee"])

    @property
    def basis(self) -> Basis:
        """Whether the guarantee is proved, claimed or void."""
        return Basis(self.body["basis"])

    @property
    def files(self) -> Mapping[str, str]:
        """File name to SHA-256, for every other file of the folder."""
        return dict(self.body.get("files", {}))

    def with_files(self, files: Mapping[str, str]) -> Certificate:
        """Return the certificate with the digests of the folder's files."""
        return replace(self, body={**self.body, "files": dict(files)}, signature=None)

    def to_bytes(self) -> bytes:
        """Write the file's content."""
        content: dict[str, Any] = {**self.body, "digest": self.digest}
        if self.signature is not None:
            content["signature"] = dict(self.signature)
        return canonical(content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Certificate:
        """Read a certificate; anything but the exact canonical form is refused.

        Raises
        ------
        CheckFailed
            If it is unreadable, of an unknown format, altered, or not in canonical form.
        """
        content = _parse(data)
        digest = content.pop("digest", None)
        signature = content.pop("signature", None)
        certificate = cls(body=content, signature=signature)
        _check_form(certificate, digest, data)
        _check_shape(certificate)
        return certificate

    def signed(self, key: str | os.PathLike[str]) -> Certificate:
        """Return the certificate signed with an Ed25519 private key (PEM file)."""
        private = load_private_key(key)
        return replace(
            self,
            signature={
                "algorithm": "ed25519",
                "public_key": private.public_key().public_bytes_raw().hex(),
                "value": private.sign(_SIGNED_PREFIX + self.digest.encode()).hex(),
            },
        )

    def check_signature(self, trusted: bytes | None) -> str:
        """Check the signature and say what was found.

        Parameters
        ----------
        trusted
            Public key it must be by (see :func:`load_public_key`); None accepts any signer, and none.

        Raises
        ------
        CheckFailed
            If the signature is wrong, or a key was given and the signature is missing or by another key.
        """
        if self.signature is None:
            if trusted is not None:
                raise CheckFailed("certificate.json: not signed, so it cannot be by the key given.")
            return "not signed: digests alone do not detect forgery"
        public = _verified_signer(self.signature, self.digest)
        if trusted is None:
            return "signed, but by whom is not checked: give --signed-by with a key you trust"
        if public != trusted:
            raise CheckFailed("certificate.json: signed by another key than the one given.")
        return "signed by the key given"


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > MOST_CERTIFICATE_BYTES:
        raise CheckFailed("certificate.json: larger than 16 MiB. It was not read.")
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise CheckFailed(f"certificate.json: not readable as JSON. {_ALTERED}") from None
    # True and 1.0 equal 1 in Python, but are other files.
    if not isinstance(content, dict) or type(content.get("format")) is not int or content["format"] != FORMAT:
        raise CheckFailed(f"certificate.json: not a certificate of format {FORMAT}. Use a newer version of Dunnage.")
    return content


def _check_form(certificate: Certificate, digest: Any, data: bytes) -> None:
    """Check a certificate against its digest and its canonical form."""
    if certificate.signature is not None and not _fits(certificate.signature, {str: str}):
        raise CheckFailed("certificate.json: signature malformed.")
    try:
        own_digest, own_bytes = certificate.digest, certificate.to_bytes()
    except (ValueError, RecursionError):  # NaN, half of a character, or nested without end
        raise CheckFailed(f"certificate.json: not in canonical form. {_ALTERED}") from None
    if digest != own_digest:
        raise CheckFailed(f"certificate.json: its own digest does not match. {_ALTERED}")
    if own_bytes != data:
        raise CheckFailed(f"certificate.json: not in canonical form. {_ALTERED}")


def _check_shape(certificate: Certificate) -> None:
    """Check that every field readers rely on is there and of its type."""
    body = certificate.body
    wrong = [str(name).rstrip("?") for name, shape in _SHAPE.items() if not _fits(body, {name: shape})]
    if not wrong:
        try:
            _ = certificate.guarantee, certificate.basis, guarantee_from(body.get("holds", body["guarantee"]))
            return
        except (ParameterError, ValueError, TypeError):
            wrong = ["guarantee or basis"]
    raise CheckFailed(f"certificate.json: {', '.join(wrong)} missing or malformed.")


def _fits(value: Any, shape: Any) -> bool:
    """Return whether plain data has a shape."""
    if isinstance(shape, type):
        return isinstance(value, shape) and not isinstance(value, bool)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if not isinstance(value, Mapping):
        return False
    if str in shape:
        return all(_fits(item, shape[str]) for item in value.values())
    return all(
        _fits(value[name.rstrip("?")], part) if name.rstrip("?") in value else name.endswith("?")
        for name, part in shape.items()
    )


def _verified_signer(signature: Any, digest: str) -> bytes:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public, value = bytes.fromhex(signature["public_key"]), bytes.fromhex(signature["value"])
        expected = {"algorithm": "ed25519", "public_key": public.hex(), "value": value.hex()}
        if signature != expected:  # hex has one canonical form here: lower case
            raise ValueError
        Ed25519PublicKey.from_public_bytes(public).verify(value, _SIGNED_PREFIX + digest.encode())
    except (InvalidSignature, ValueError, KeyError, TypeError):
        raise CheckFailed("certificate.json: the signature does not fit the certificate.") from None
    return public


def load_private_key(path: str | os.PathLike[str]) -> Any:
    """Load an Ed25519 private key from an unencrypted PEM file."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _pem_key(path, lambda data: load_pem_private_key(data, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise ParameterError(
            f"{os.fspath(path)}: not an Ed25519 private key in PEM form without a password. "
            "Make one with: openssl genpkey -algorithm ed25519 -out key.pem"
        )
    return key


def load_public_key(path: str | os.PathLike[str]) -> bytes:
    """Load an Ed25519 public key from a PEM file and return its 32 raw bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _pem_key(path, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise ParameterError(
            f"{os.fspath(path)}: not an Ed25519 public key in PEM form. "
            "Make one with: openssl pkey -in key.pem -pubout -out key.pub.pem"
        )
    return key.public_bytes_raw()


def _pem_key(path: str | os.PathLike[str], load: Callable[[bytes], Any]) -> Any:
    """Load whatever key a PEM file holds; None if it holds none that can be read."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise ParameterError(f"{os.fspath(path)} cannot be read: {reason}. Check the path of the key.") from None
    try:
        return load(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def certify(
    promise: Promise,  # What was promised before any data was seen
    *,
    kind: str,  # `rows`, `counts` or `estimates`
    dataset: str,  # dataset, period: what was released
    period: str | None,
    attributes: list[dict[str, Any]],  # Public description of the released columns
    measures: Mapping[str, Any],  # Figures that the guarantee lets everyone see
    spend: Mapping[str, Any],  # `id` and `at` of the ledger entry, and the loss `composed` with earlier releases
) -> Certificate:
    """Write the certificate of a release from the promise that was spent on."""
    body = {
        "format": FORMAT,
        "kind": kind,
        "dataset": dataset,
        **({"period": period} if period else {}),
        **promise.to_dict(),
        "attributes": attributes,
        "measures": dict(measures),
        "meaning": meaning(promise),
        "spend": {"id": spend["id"], "at": spend["at"]},
        "composition": {"rule": composition_rule(promise.guarantee), **spend.get("composed", {})},
        "software": {"dunnage": __version__},
        "time": spend["at"],
        "digests_say": _DIGESTS_SAY,
        "files": {},
    }
    return Certificate(body=body)


def meaning(promise: Promise) -> dict[str, Any]:
    """Say in plain words and odds what a promise means to the one protected."""
    if promise.basis is Basis.VOID:
        return {"sentences": [f"Nothing is promised: {promise.why}."], "odds": []}
    held = promise.guarantee if promise.basis is Basis.PROVED else promise.holds
    if held is None:
        return {"sentences": [f"No bound is proved: {promise.why}."], "odds": []}
    if isinstance(held, KAnonymity):
        return _meaning_of_classes(held, persons=any(a.name == COUNTS_PERSONS for a in promise.assumptions))
    loss = Loss(held.epsilon, getattr(held, "delta", Fraction(0)))
    return {"sentences": [_scope(held)], "odds": odds(loss)}


def _meaning_of_classes(held: KAnonymity, *, persons: bool) -> dict[str, Any]:
    share = f"{100 / held.k:.3g} %"
    people, counts = "", []
    if persons:
        people = f", of at least {held.k} different persons"
        counts = ["k counts persons, not records; how many records in a class are of one person is not limited."]
    return {
        "sentences": [
            f"Someone who knows the public and generalised values of a {held.protects} finds at least {held.k} "
            f"released records that look alike{people}, so a guess at its row is right with at most {share} (1 in "
            f"{held.k}).",
            *counts,
            "It does not limit what can be concluded from values that all records of a class share, from knowing that "
            "a record is absent, or from a second release of the same records.",
        ],
        "odds": [{"attack": "name the row of a known record", "right_at_most": _ceiling(Fraction(1, held.k))}],
    }


def _scope(held: Guarantee) -> str:
    scopes: dict[type, str] = {
        WithinCluster: "between values of the same cluster; which cluster a record is in is public",
        WithinPublishedBorders: "between values that the published borders do not separate",
        LocalDP: f"between any two values the device could have held, for one {held.protects}",
        MetricLocalDP: "between two values at distance one",
    }
    fallback = f"whether or not one {held.protects} is in the data"
    if getattr(held, "neighbours", None) == "replace-one":
        fallback = f"whatever the values of one {held.protects} are"
    return f"The bound holds {scopes.get(type(held), fallback)}."


def odds(loss: Loss) -> list[dict[str, Any]]:
    """Return what a suspicion can become at most, rounded up.

    With delta 0 the row bounds the suspicion itself after seeing the release. With delta above 0 no such bound
    exists for every outcome; the row then bounds the chance that the attacker's best guess is right.

    Examples
    --------
    >>> odds(Loss(Fraction(1)))[1]["sentence"]
    'a 10 % suspicion becomes at most 23.2 %'
    """
    if loss.epsilon is None:
        return []
    return [_odds_row(prior, loss) for prior in PRIORS]


def _odds_row(prior: Fraction, loss: Loss) -> dict[str, Any]:
    growth = exp_upper(min(loss.epsilon or Fraction(0), Fraction(700)))
    before = float(prior)
    if not loss.delta:
        after = _ceiling(prior / (prior + (1 - prior) / growth))
        sentence = f"a {_percent(before)} suspicion becomes at most {_percent(after)}"
        return {"before": before, "at_most": after, "sentence": sentence}
    # The best test between "in" and "out" is a corner of the (epsilon, delta) region.
    error = (1 - loss.delta) / (1 + growth)
    right = _ceiling(max(1 - error, 1 - prior * (1 - loss.delta), 1 - (1 - prior) * (1 - loss.delta)))
    sentence = f"with a {_percent(before)} suspicion, the best guess is right with at most {_percent(right)}"
    return {"before": before, "right_guess_at_most": right, "sentence": sentence}


def _ceiling(probability: Fraction) -> float:
    """Round a probability up to four digits: printed bounds never flatter."""
    return min(1.0, math.ceil(probability * 10_000) / 10_000)


def proof_text(body: Mapping[str, Any]) -> str:
    """Say where it is proved what a certificate or promise states; empty if it does not say.

    Examples
    --------
    >>> proof_text({"proof": {"project": "dunnage", "version": "1.0", "sections": ["docs/proofs/noise.md"]}})
    'docs/proofs/noise.md (dunnage 1.0)'
    """
    proof = body.get("proof")
    return f"{', '.join(proof['sections'])} ({proof['project']} {proof['version']})" if proof else ""


def composition_rule(guarantee: Guarantee) -> str:
    """Say how the guarantee adds up with others."""
    if isinstance(guarantee, KAnonymity):
        return "does not compose: after this release no differential-privacy total exists for the dataset"
    if isinstance(guarantee, WithinPublishedBorders):
        return "does not compose: each release publishes borders of its own; never adds to plain epsilon"
    if isinstance(guarantee, WithinCluster | MetricLocalDP):
        return "adds up only with releases of the same scope; never adds to plain epsilon"
    return "epsilons (and deltas) of releases about the same unit and neighbours add up"
