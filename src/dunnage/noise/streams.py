# SPDX-License-Identifier: Apache-2.0
"""Streams: noise for rows that are released where they live, in tasks that may run twice.

After the spend one key comes from the system. Each part of the rows has a name that does not change, and its own stream
of random bytes: ChaCha20 under a key that HKDF derives from the one key and the name. A task that runs again draws the
same bytes, so that it makes the same release. Fresh noise would make a second one.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dunnage.noise.priorities import KEY_BYTES
from dunnage.noise.source import Noise


class Stream(Noise):
    """The noise of one part of the rows; it cannot be copied or sent."""

    __slots__ = ()

    def __init__(self, key: bytes, name: bytes) -> None:
        super().__init__()
        own = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"dunnage rows\0" + name).derive(key)
        draw = Cipher(ChaCha20(own, bytes(16)), mode=None).encryptor()
        self._source, self._pool = lambda num: draw.update(bytes(num)), []

    def __reduce__(self) -> tuple[type[Noise], tuple[()]]:
        raise TypeError("a stream cannot be copied or pickled: it would hand out the same noise twice.")
