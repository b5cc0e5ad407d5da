# SPDX-License-Identifier: Apache-2.0
"""What goals on an owner's rows share: reading them, rows to measure on, candidates, and releases that cost nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from dunnage import noise_arrays
from dunnage.advising.frontier import DATA, GENERATED, SAMPLE, Failure, Table
from dunnage.advising.sweep import Asked, Case, Task, Tasks, reason
from dunnage.arrays import IntArray
from dunnage.domains import Numeric
from dunnage.errors import ParameterError, PolicyError
from dunnage.exact import plain
from dunnage.guarantees import Guarantee, KAnonymity, Neighbours
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.partition import Partition
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.samples.like import like_rows
from dunnage.schema import Role
from dunnage.tables.dataset import Dataset

if TYPE_CHECKING:
    from dunnage.publication import Publication

KS, QUICK_KS = (2, 3, 5, 10, 20, 50), (2, 5, 20)
MOST_RECORDS = 1500
"""Records that one draw measures on unless more are asked for: some seconds each, and many draws make a frontier."""
MOST_ALONG_ONE, MOST_ALONG_SEVERAL = 200_000, 10_000
"""Records that a fast mechanism is measured on, where nothing is planned: with one quasi-identifier, and with more."""
# Any mechanism does to read a policy whose own is blank; what it is, is chosen later.
_ANY_MECHANISM: Table = {"name": Partition.name, "k": 2}
_SEARCHED = "max_distortion"
"""The parameter to keep to which classes are searched for again and again, in all groups together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Opened(Case):
    """An owner's rows, read under the policy whose mechanism is to be chosen."""

    policy: Policy  # The policy they were read under

    @property
    def most(self) -> int:
        """How many records a draw of a fast mechanism is measured on, at most."""
        several = len(self.policy.schema.quasi_identifiers) > 1
        return self.asked.size or (MOST_ALONG_SEVERAL if several else MOST_ALONG_ONE)

    def most_of(self, tried: Task) -> int:
        fast = MECHANISMS[tried.mechanism].fast and _SEARCHED not in tried.parameters
        return self.asked.size or (self.most if fast else min(self.most, MOST_RECORDS))

    @property
    def most_compared(self) -> int:
        """How many records are compared with, at most: as many as most tasks are measured on."""
        return self.most

    @property
    def num_measured(self) -> int:
        return min(len(self.data), self.most)

    @cached_property
    def groups(self) -> tuple[IntArray, ...]:
        """Numbers of the group of each row: groups that are measured as a whole if they can be, and those inside."""
        public = codes_of(self.data, [item.name for item in self.policy.schema.public])
        return (public,) if self.asked.by is None else (codes_of(self.data, [self.asked.by]), public)

    def rows(self, task: Task, noise: Noise) -> Dataset:
        """Return rows to measure a task on, true or generated ones, under its policy."""
        from dunnage.publishing import promise

        policy, most = task.under(self.policy), self.most_of(task)
        if task.on != GENERATED:
            return some_rows(self.data, policy, self.groups, noise, most)
        size = generated_size(self.asked.size, self.data, promise(policy).guarantee, most)
        return like_rows(self.data, policy, size, noise, self.largest)

    def rows_alike(self, noise: Noise) -> Dataset:
        """Return rows to compare with, of the kind that most tasks are measured on."""
        if self.asked.on != GENERATED:
            return some_rows(self.data, self.policy, self.groups, noise, self.most_compared)
        size = self.asked.size or self.num_measured
        return like_rows(self.data, self.policy, size, noise, self.largest)

    def kind_of_rows(self, tried: Task) -> str:
        """Say what true rows are that a task is measured on: data if its classes are those of all rows."""
        most = self.most_of(tried)
        if len(self.data) <= most:
            return DATA
        apart = MECHANISMS[tried.mechanism].apart and _SEARCHED not in tried.parameters
        return DATA if apart and takes_whole_groups(self.groups, most) else SAMPLE

    @property
    def largest(self) -> Mapping[str, float]:
        """Largest values by column, where something else than the domain bounds them."""
        return {}


def opened(asked: Asked, goal: str) -> tuple[Policy, Dataset, str]:
    if asked.base.for_devices:
        raise ParameterError(f"the policy is for devices, which have no {goal}. Use --goal error.")
    policy = asked.base.policy(_ANY_MECHANISM)
    if policy.schema.trip is not None:
        raise ParameterError(f"the policy counts trips, which have no {goal}. Use --goal shuttles.")
    if isinstance(asked.data, Dataset):
        data = asked.data
        if data.schema != policy.schema:
            raise ParameterError("the rows were read under another policy. Give their own, or the path of the rows.")
    else:
        from dunnage.tables.load import load

        data = load(asked.data, policy, period=asked.period)
    return policy, data, check_digest(data, policy)


def check_digest(data: Dataset, policy: Policy) -> str:
    """Return a digest of private rows and of the files that their policy names, to tell whether both are the same."""
    return hashlib.sha256(f"{data.keyed_digest(b'advise')} {sorted(policy.files.items())}".encode()).hexdigest()


def codes_of(data: Dataset, names: Iterable[str]) -> IntArray:
    """Give records with equal values in some columns the same number, from 0 on."""
    codes = np.zeros(len(data), dtype=np.int64)
    for name in names:
        column = data.column(name).dictionary_encode(null_encoding="encode").indices
        own = column.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1].reshape(-1)
    return codes


# --- Rows to measure on --------------------------------------------------------------------------------------------


def some_rows(
    data: Dataset, policy: Policy, groups: Sequence[IntArray], noise: Noise, most: int = MOST_RECORDS
) -> Dataset:
    """Return all rows, or if they are many some whole groups at random; of a group that is too large, some rows."""
    records = np.sort(_some(np.arange(len(data)), groups, most, noise))
    columns = {}
    for item in data.schema:
        if item.role is not Role.DROP:
            try:
                columns[item.name] = data.column(item.name)
            except KeyError:  # identifiers of merged rows are kept with their parts alone
                continue
    return Dataset(
        table=pa.table(columns).take(pa.array(records)),
        policy=policy,
        period=data.period,
        source=data.source,
        parts=data.parts.take(records),
        num_left_out=0,
    )


def takes_whole_groups(groups: Sequence[IntArray], most: int) -> bool:
    """Whether :func:`some_rows` takes whole groups, or whole groups inside one, whichever it chooses."""
    sizes = np.unique(groups[0], return_counts=True)[1]
    smallest, largest = int(sizes.min()), int(sizes.max())
    if largest <= most and (2 * largest <= most or 2 * smallest >= most):
        return True
    # More than half the rows are left to be taken from inside a group that is too large.
    return any(4 * int(np.unique(inner, return_counts=True)[1].max()) <= most for inner in groups[1:])


def _some(rows: IntArray, groups: Sequence[IntArray], most: int, noise: Noise) -> IntArray:
    """Choose whole groups at random, as many as fit; if that is little, also rows of the next one."""
    if len(rows) <= most:
        return rows
    if not groups:
        return rows[noise_arrays.permutation(noise, len(rows))[:most]]
    place, sizes = np.unique(groups[0][rows], return_inverse=True, return_counts=True)[1:]
    order = noise_arrays.permutation(noise, len(sizes))
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), most, side="right"))
    whole = rows[np.isin(place.reshape(-1), order[:fitting])]
    if 2 * len(whole) >= most:
        return whole
    following = rows[place.reshape(-1) == order[fitting]]
    return np.concatenate([whole, _some(following, groups[1:], most - len(whole), noise)])


def generated_size(asked: int | None, data: Dataset, guarantee: Guarantee, most: int = MOST_RECORDS) -> int:
    """Return how many records to generate: as asked; else as many as there are if that may be told, else about so many.

    If they are many, some are enough.
    """
    if asked is not None:
        return asked
    public = isinstance(guarantee, KAnonymity) or getattr(guarantee, "neighbours", None) is Neighbours.REPLACE_ONE
    return min(len(data) if public else rounded(len(data)), most)


def rounded(number: int) -> int:
    """Round to one significant digit.

    Examples
    --------
    >>> rounded(4321), rounded(97), rounded(8)
    (4000, 100, 8)
    """
    scale: int = 10 ** max(len(str(number)) - 1, 0)
    return max(math.floor(number / scale + 0.5) * scale, 1)


# --- Candidates ----------------------------------------------------------------------------------------------------


def checked_tasks(case: Opened, candidates: Iterable[Task]) -> Tasks:
    """Return candidates that the policy allows, with what they promise, and why others are not: each reason once."""
    from dunnage.publishing import promise as promise_of

    tasks: list[Task] = []
    failed: dict[tuple[str, str], Failure] = {}
    for task in candidates:
        try:
            promise = promise_of(task.under(case.policy))
        except PolicyError as error:
            why = reason(error)
            failed.setdefault((task.mechanism, why), Failure(name=task.mechanism, why=why))
            continue
        on = measured_on(case.asked.on, promise.guarantee)
        tasks.append(
            replace(
                task,
                guarantee=in_words(promise.guarantee),
                basis=str(promise.basis),
                on=GENERATED if on == GENERATED else case.kind_of_rows(task),
            )
        )
    return tasks, list(failed.values())


def measured_on(asked: str, guarantee: Guarantee) -> str:
    if asked != "auto":
        return asked
    return DATA if isinstance(guarantee, KAnonymity) else GENERATED


def in_words(guarantee: Guarantee) -> str:
    """Write a guarantee in a few words.

    Examples
    --------
    >>> in_words(KAnonymity(k=5, protects="package"))
    'k-anonymity, k 5'
    """
    named = ("k", "epsilon", "delta", "beta")
    facts = [(name, getattr(guarantee, name)) for name in named if getattr(guarantee, name, None) is not None]
    numbers = [f"{name} {value if isinstance(value, int) else f'{float(value):.4g}'}" for name, value in facts]
    neighbours = getattr(guarantee, "neighbours", None)
    return ", ".join([guarantee.model, *numbers, *([str(neighbours)] if neighbours else [])])


def ranges_of(domain: Numeric, number: int) -> list[JsonValue]:
    """Cut a domain with a grid into so many ranges of about equal width; return the borders, or nothing if too few.

    Examples
    --------
    >>> ranges_of(Numeric(lower=0, upper=10, resolution=1), 4)
    [2, 5, 7]
    """
    assert domain.resolution is not None
    steps = sorted({domain.num_steps * part // number for part in range(1, number)} - {0})
    return [plain(domain.lower + step * domain.resolution) for step in steps if step < domain.num_steps]


# --- Releases ------------------------------------------------------------------------------------------------------


def released(data: Dataset, noise: Noise) -> Publication:
    from dunnage.ledger import Ledger
    from dunnage.publishing import publish

    with Ledger(":memory:") as ledger:
        return publish(data, ledger=ledger, noise=noise)


def sampled_says(case: Opened, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Say that many rows were not all measured on, where they were not: which mechanisms, on how many, what differs."""
    most: dict[tuple[int, str], dict[str, None]] = {}
    for task in tasks:
        limit = case.most_of(task)
        if len(case.data) > limit:
            most.setdefault((limit, task.on), {})[_described(task)] = None
    says = [
        f"The data have more records than were measured on: each draw of {', '.join(names)} takes at most {limit:,}"
        f"{_TAKEN[on]}"
        for (limit, on), names in most.items()
    ]
    return (*says, "--size measures on more, which takes longer.") if says else ()


def _described(task: Task) -> str:
    """Name the tasks of one mechanism that are measured alike."""
    more = f" with {_SEARCHED}" if _SEARCHED in task.parameters else ""
    return task.mechanism + more + (f" for {task.plan['name']} plans" if task.plan else "")


_TAKEN = {
    DATA: " of the true ones, all of some public values, chosen anew; their classes are those of all records.",
    SAMPLE: (
        " of the true ones, random rows chosen anew, so these points are marked as measured on a sample. With all rows "
        "there are more to hide among: classes are narrower, or hold more where max_distortion is given, and costs and "
        "the linkage of records are rather lower, often several times. Truck linkage differs by much, either way. Do "
        "not compare them with points of all rows."
    ),
    GENERATED: " generated ones. With more, classes are narrower, and costs and the linkage of records rather lower.",
}
