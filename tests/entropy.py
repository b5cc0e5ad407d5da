# SPDX-License-Identifier: Apache-2.0
"""Bytes in place of the system's entropy, the same in every run: what a test needs of noise, it gets or never gets."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys

from dunnage.noise import source


class Entropy:
    """``os.urandom`` for our own modules, with a stream for each name; other packages still get the system's."""

    def __init__(self, salt: str) -> None:
        self.system, self.salt = os.urandom, salt
        self.forks = 0
        self.begin("")

    def begin(self, name: str) -> None:
        """Begin the stream of this name; words that were drawn ahead are not used."""
        self.name, self.calls = name, itertools.count()
        source._POOL.clear()

    def __call__(self, size: int) -> bytes:
        if sys._getframe(1).f_globals["__name__"].partition(".")[0] != "dunnage":
            return self.system(size)
        return hashlib.shake_256(f"{self.salt} {self.name} {next(self.calls)}".encode()).digest(size)

    def replace(self) -> None:
        """Take the place of the system's entropy, in this process and, with a stream for each, in its children."""
        os.urandom = self
        os.register_at_fork(before=self._fork, after_in_child=lambda: self.begin(f"{self.name} {self.forks}"))

    def _fork(self) -> None:
        self.forks += 1
