# SPDX-License-Identifier: Apache-2.0
"""SHA256SUMS of what ``make build`` made, signed where a key is given: ``python checksums.py dist [key.pem]``."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def main(folder: str, key: str = "") -> None:
    """Write ``SHA256SUMS`` beside wheels and sources, and an Ed25519 signature of it as ``SHA256SUMS.sig``."""
    files = sorted(path for path in Path(folder).iterdir() if path.suffix in (".whl", ".gz"))
    if not files:
        sys.exit(f"{folder}: no wheel or source to sum up. Run make build")
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    content = "".join(lines).encode()
    signature = Path(folder, "SHA256SUMS.sig")
    signature.unlink(missing_ok=True)  # an older one is no signature of these
    if key:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        secret = load_pem_private_key(Path(key).read_bytes(), password=None)
        if not isinstance(secret, Ed25519PrivateKey):
            sys.exit(f"{key}: not an Ed25519 key. Make one with: openssl genpkey -algorithm ed25519 -out key.pem")
        signature.write_bytes(secret.sign(content))
    Path(folder, "SHA256SUMS").write_bytes(content)


if __name__ == "__main__":
    main(*sys.argv[1:])
