# SPDX-License-Identifier: Apache-2.0
"""Senders: the vehicles and gateways that are enrolled, by the hashes of their tokens, and their public groups."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from dunnage.collecting.periods import MIN_VEHICLES


class Sender(NamedTuple):
    task: str
    name: str
    limit: int  # reports in a day
    per_second: float  # requests; 0: no limit
    vehicles: int = 0
    group: str = ""  # public, such as a company or a region


class Senders:
    def __init__(self) -> None:
        self._by_hash: dict[bytes, Sender] = {}
        self._hash_of: dict[tuple[str, str], bytes] = {}
        self._vehicles: Counter[tuple[str, str]] = Counter()  # by task and group

    def __len__(self) -> int:
        return len(self._by_hash)

    def get(self, key: bytes) -> Sender | None:
        return self._by_hash.get(key)

    def put(self, key: bytes, sender: Sender) -> None:
        """Know a sender by its token; one it had before is worth nothing from now on."""
        self.drop(sender.task, sender.name)
        self._by_hash[key], self._hash_of[sender.task, sender.name] = sender, key
        self._vehicles[sender.task, sender.group] += sender.vehicles

    def drop(self, task: str, name: str) -> None:
        key = self._hash_of.pop((task, name), None)
        if key is not None:
            sender = self._by_hash.pop(key)
            self._vehicles[task, sender.group] -= sender.vehicles

    def kept_group(self, sender: Sender) -> str:
        """Return the group to keep with reports: none, if so few vehicles have it that it could point at one."""
        return sender.group if self._vehicles[sender.task, sender.group] >= MIN_VEHICLES else ""
