# SPDX-License-Identifier: Apache-2.0
"""The checks of ``verify.html``, run without a browser."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import quickjs

from dunnage.model.certificate import SIGNED_PREFIX, Certificate
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, TABLES, VERIFY_FILE
from dunnage.release.page import verify_page
from dunnage.verification import RELEASE_TEXTS

# What a browser has and the engine has not: text in UTF-8, and hashing by Python, which is faster.
SHIM = """
globalThis.bytesOf = (text) => Uint8Array.from(text, (char) => char.charCodeAt(0));
globalThis.textOfBytes = (bytes) => {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 4096) parts.push(String.fromCharCode(...bytes.subarray(at, at + 4096)));
  return parts.join("");
};
globalThis.TextDecoder = class { decode(bytes) { return decodeURIComponent(escape(textOfBytes(bytes))); } };
"""
RUN = """
globalThis.page = checker(JSON.parse(facts));
globalThis.run = (text) => {
  const {files, keys, matches} = JSON.parse(text);
  for (const file of files) if (file.bytes !== null) file.bytes = bytesOf(file.bytes);
  return JSON.stringify(page.examine(files, {keys, matches, hash: (bytes) => digest(textOfBytes(bytes))}),
    (key, value) => (typeof value === "bigint" ? String(value) : value));
};
globalThis.hashed = (text) => page.sha256(bytesOf(text));
"""


@cache
def page_text() -> str:
    return verify_page(tuple(sorted(RELEASE_FILES)), tuple(sorted(RELEASE_TEXTS)), TABLES)


@cache
def engine() -> Any:
    facts, script = re.findall(r"<script[^>]*>(.*?)</script>", page_text(), re.DOTALL)
    made = quickjs.Context()
    made.set("facts", facts)
    made.add_callable("digest", lambda text: hashlib.sha256(text.encode("latin-1")).hexdigest())
    made.eval(f"{SHIM}\n{script}\n{RUN}")
    return made


def examined(folder: Path, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Check a folder as the page does; the signature is checked here, as a browser would."""
    files, matches = [], None
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        read = path.suffix in (".json", ".csv")
        text = content.decode("latin-1") if read else None
        files.append({"name": path.name, "digest": hashlib.sha256(content).hexdigest(), "bytes": text})
    try:
        certificate = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes())
        signature = certificate.signature
        matches = (
            None if signature is None else signature.signer(SIGNED_PREFIX + certificate.digest.encode()) is not None
        )
    except Exception:  # whatever is wrong, the page must see it by itself
        matches = None
    made: dict[str, Any] = json.loads(
        engine().get("run")(json.dumps({"files": files, "keys": keys, "matches": matches}))
    )
    return made


assert VERIFY_FILE in RELEASE_TEXTS
