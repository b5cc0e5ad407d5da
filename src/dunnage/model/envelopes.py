# SPDX-License-Identifier: Apache-2.0
"""Envelopes: content with Ed25519 signatures, as DSSE defines them (github.com/secure-systems-lab/dsse).

The signature covers the type of the content too, so that an approval can never be read as something else.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path

from dunnage.errors import CheckFailed
from dunnage.model.certificate import load_private_key
from dunnage.model.documents import Listed, Model, load_json

_TYPE = "application/vnd.dunnage.{}+json"
MAX_ENVELOPE_BYTES = 1 << 20


class EnvelopeSignature(Model):
    keyid: str  # the public key, in hexadecimal
    sig: str


class Envelope(Model):
    payloadType: str  # noqa: N815  # the names of the standard
    payload: str
    signatures: Listed[EnvelopeSignature]

    def signers(self, kind: str, people: Mapping[str, str]) -> tuple[bytes, list[str]]:
        """Return the content, and which of these people (name -> public key) have signed it."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            content = base64.b64decode(self.payload, validate=True)
            if self.payloadType != _TYPE.format(kind):
                raise ValueError
            names = []
            for item in self.signatures:
                public, value = bytes.fromhex(item.keyid), base64.b64decode(item.sig, validate=True)
                Ed25519PublicKey.from_public_bytes(public).verify(value, _signed_bytes(self.payloadType, content))
                names += [name for name, key in people.items() if bytes.fromhex(key) == public]
        except (InvalidSignature, ValueError):
            raise CheckFailed(f"the signature of this {kind} does not match.") from None
        return content, names


def _signed_bytes(kind: str, content: bytes) -> bytes:
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(content), content)


def sign(kind: str, content: bytes | Mapping[str, object], key: str | os.PathLike[str]) -> dict[str, object]:
    """Return content in an envelope that is signed with an Ed25519 private key (PEM file)."""
    private = load_private_key(key)
    if not isinstance(content, bytes):
        content = json.dumps(content, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
    signature = private.sign(_signed_bytes(_TYPE.format(kind), content))
    signed = {"keyid": private.public_key().public_bytes_raw().hex(), "sig": base64.b64encode(signature).decode()}
    payload = base64.b64encode(content).decode()
    return {"payloadType": _TYPE.format(kind), "payload": payload, "signatures": [signed]}


def read_envelope(path: Path, what: str) -> Envelope:
    from dunnage.model.documents import check

    return check(load_json(path, what=what, max_bytes=MAX_ENVELOPE_BYTES), Envelope, path, what=what)
