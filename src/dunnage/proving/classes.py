# SPDX-License-Identifier: Apache-2.0
"""k-anonymity: the smallest class that a mechanism ever releases, counted from outside.

The real mechanism releases every table that a small domain allows, up to some number of records, and some larger ones.
A few lines of independent code examine the result: they count rows that look alike in all columns that an attacker may
know, by the records (or persons) that they came from according to the owner's key, so that a row released twice counts
once. They use neither ``verify`` nor any figure of the certificate.

A class hides nobody if the place of a row in the file reveals its record: the same table is released over and over, and
the rows must come in every order equally often.

k-anonymity bounds no epsilon. The last check of each mechanism shows it: two tables that differ in one record lead to
releases that cannot be confused.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from dunnage.errors import Refusal
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.partition import Partition
from dunnage.model.guarantees import KAnonymity, Neighbours, Promise
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.proving.examining import Till
from dunnage.proving.statistical import UNLIKELY, agrees
from dunnage.proving.verdict import HOLDS, UNBOUNDED, VOID, Checks, Verdict
from dunnage.publication import Publication
from dunnage.publishing import mechanism_of
from dunnage.tables.dataset import Dataset, load

Table = Mapping[str, Sequence[Any]]  # columns by name
Record = tuple[Any, ...]
WEIGHT = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 16], "resolution": 1, "doubling": 2}
ATTRIBUTES: Mapping[str, Mapping[str, object]] = {
    "weight": WEIGHT,
    "height": WEIGHT,
    "kind": {"role": "quasi-identifier", "kind": "category", "domain": ["box", "bag"]},
    "town": {"role": "public"},
    "card": {"role": "identifier"},
}
_REPEATS = 4
_ORDERINGS = 200  # releases of three rows: each of their 6 orders is then expected 33 times


@dataclass(frozen=True, kw_only=True)
class ClassSetting:
    variant: str  # what is special about it
    columns: Sequence[str] = ("weight",)
    parameters: Mapping[str, object]  # the mechanism table of the policy
    tables: Iterable[Table] = ()  # the tables to release
    expected: str = HOLDS  # the expected verdict
    person: str | None = None  # the column that names persons, if k counts them
    mechanism: Any = None  # to examine instead of the policy's

    @property
    def policy(self) -> Policy:
        document: dict[str, object] = {"dataset": "proof", "protects": "package", "small": "suppress"}
        document["attributes"] = {name: dict(ATTRIBUTES[name]) for name in self.columns}
        document["mechanism"] = dict(self.parameters)
        if self.person is not None:
            document["contribution"] = {"person": self.person}
        return Policy.from_dict(document)

    def made(self) -> tuple[Any, Policy, Promise]:
        policy = self.policy
        mechanism = self.mechanism or mechanism_of(policy)
        return mechanism, policy, mechanism.promise(policy.schema)


def _data(table: Table, policy: Policy) -> Dataset:
    return load(pa.table({name: list(column) for name, column in table.items()}), policy)


def examine(setting: ClassSetting) -> Verdict:
    mechanism, policy, promise = setting.made()
    claimed = promise.guarantee.k if isinstance(promise.guarantee, KAnonymity) else 0
    sensitive = {attribute.name for attribute in policy.schema.sensitive}
    noise, refusals, sizes = Noise(), 0, []
    for table in setting.tables:
        try:
            publication = mechanism.release(_data(table, policy), ledger=Till(noise), noise=noise)
        except Refusal:
            refusals += 1
        else:
            sizes.append(smallest_class(publication, sensitive=sensitive, person=setting.person))
    measured = float(min(sizes, default=0))
    unit = "persons" if setting.person else "records"
    return Verdict.of(
        mechanism.name,
        setting.variant,
        float(claimed),
        measured,
        basis=promise.basis,
        quantity="k",
        method=f"{len(sizes):,} releases counted independently, {refusals:,} tables refused",
        expected=setting.expected,
        sentence=f"The smallest class of {len(sizes):,} releases has {measured:g} {unit}; {claimed} are promised.",
    )


def looks(publication: Publication, *, sensitive: Iterable[str] = ()) -> list[str]:
    """Return what each released row shows about its record: every column except its number and the sensitive ones."""
    data = publication.release.data
    shown = data.select([name for name in data.column_names if name not in {"row", *sensitive}])
    return [repr(tuple(row.values())) for row in shown.to_pylist()]


def smallest_class(publication: Publication, *, sensitive: Iterable[str] = (), person: str | None = None) -> int:
    """Count the records, or persons, behind rows that look alike, and return the smallest number."""
    key = publication.key.table.to_pylist()
    shown = looks(publication, sensitive=sensitive)
    # A record that was released in several rows counts once.
    look_of = {line["source_row"]: shown[line["row"]] for line in key}
    behind = {(look_of[line["source_row"]], line[person or "source_row"]) for line in key}
    sizes = Counter(look for look, _ in behind)
    members = publication.release.members
    listed = Counter(members.column("class_id").to_pylist()) if members is not None else Counter[int]()
    return min([*(sizes[look] for look in set(shown)), *listed.values()], default=0)


def examine_epsilon(setting: ClassSetting, one: Table, other: Table) -> Verdict:
    """Show that two tables that differ in one record lead to releases that cannot be confused."""
    mechanism, policy, promise = setting.made()
    claim = promise.true_loss(Neighbours.REPLACE_ONE)
    outputs: list[set[tuple[str, ...]]] = []
    for table in (one, other):
        data, noise = _data(table, policy), Noise()
        releases = (mechanism.release(data, ledger=Till(noise), noise=noise) for _ in range(_REPEATS))
        outputs.append({tuple(sorted(looks(publication))) for publication in releases})
    return Verdict.of(
        mechanism.name,
        f"{setting.variant}, no epsilon" if setting.variant else "no epsilon",
        UNBOUNDED if claim.epsilon is None else float(claim.epsilon),
        0.0 if outputs[0] & outputs[1] else UNBOUNDED,
        basis=promise.basis,
        method=f"two tables that differ in one record, each released {_REPEATS} times",
        expected=setting.expected,
        sentence="A k-anonymous release bounds no epsilon: one record can change the release for certain.",
    )


def examine_order(setting: ClassSetting, table: Table) -> Verdict:
    """Release one table over and over, and count the records that a row could be, by its place and what it shows."""
    mechanism, policy, promise = setting.made()
    data, noise = _data(table, policy), Noise()
    # How often each order of rows occurred, and which records a row with some place and look came from.
    orders, behind = Counter[tuple[int, ...]](), defaultdict[tuple[int, str], set[int]](set)
    for _ in range(_ORDERINGS):
        publication = mechanism.release(data, ledger=Till(noise), noise=noise)
        record_of = {line["row"]: line["source_row"] for line in publication.key.table.to_pylist()}
        orders[tuple(record_of[row] for row in sorted(record_of))] += 1
        for row, look in enumerate(looks(publication)):
            behind[row, look].add(record_of[row])
    every = itertools.permutations(data.source_rows.tolist())
    even = agrees(orders, dict.fromkeys(every, 1 / math.factorial(len(data)))) >= UNLIKELY
    meaning = "A row's place in the release reveals nothing about its record: all orders of rows are equally likely."
    return Verdict.of(
        mechanism.name,
        setting.variant,
        float(getattr(promise.guarantee, "k", 0)),
        float(min(len(records) for records in behind.values())),
        basis=promise.basis,
        quantity="k",
        method=f"{len(data)} records released {_ORDERINGS} times, their order read from the owner's key",
        expected=setting.expected,
        sentence=meaning if even else "The order of the released rows reveals which record is which.",
        problems=() if even else ("some orders of the released rows are likelier than others",),
    )


class _Tables(NamedTuple):
    """Every multiset of some records up to a size, and a larger table of each of some sizes."""

    records: Sequence[Record]
    larger: Callable[[int, int], Record]  # makes the record of a number in a table of a size
    most: tuple[int, int]  # records of a table, in the short form and in the long one
    end: int = 60  # of the sizes of larger tables in the long form
    sizes: tuple[int, ...] = (13, 29)  # in the short form
    num_records: int | None = None  # that are used in the short form
    least: int = 2


def every_table(names: Sequence[str], records: Sequence[Record], most: int, *, least: int = 2) -> Iterator[Table]:
    """Yield every multiset of some records, from ``least`` to ``most`` of them."""
    for size in range(least, most + 1):
        for chosen in itertools.combinations_with_replacement(records, size):
            yield dict(zip(names, zip(*chosen, strict=True), strict=True))


def _scattered(at: int, size: int) -> float:
    """Return one of 17 weights, without a pattern and with many equal ones."""
    return float((at * at * 7 + at * size + size) % 17 // (1 + size % 3))


_TABLES: Mapping[tuple[str, ...], _Tables] = {
    ("weight",): _Tables(
        [(0.0,), (1.0,), (16.0,)], lambda at, size: (_scattered(at, size),), (6, 9), end=120, sizes=(13, 29, 60)
    ),
    ("weight", "height"): _Tables(
        [*itertools.product((0.0, 16.0), repeat=2), (8.0, 8.0)],
        lambda at, size: (_scattered(at, size), _scattered(size - at, size + 1)),
        (6, 6),
        end=80,
        num_records=3,
    ),
    ("weight", "town"): _Tables(
        [(0.0, "north"), (16.0, "north"), (0.0, "south"), (16.0, "south")],
        lambda at, size: (_scattered(at, size), "ns"[at % 2]),
        (5, 7),
    ),
    ("weight", "kind"): _Tables(
        [(0.0, "box"), (16.0, "box"), (1.0, "bag"), (16.0, "bag")],
        lambda at, size: (_scattered(at, size), ("box", "bag")[at * size % 3 % 2]),
        (6, 7),
        num_records=3,
    ),
    ("weight", "card"): _Tables(
        [(0.0, "A"), (16.0, "A"), (0.0, "B"), (16.0, "C")],
        lambda at, size: (_scattered(at, size), f"card {at % 5}"),
        (5, 6),
        least=3,
    ),
}


def tables_of(columns: tuple[str, ...], long: bool) -> Iterator[Table]:
    made = _TABLES[columns]
    records = made.records if long else made.records[: made.num_records]
    yield from every_table(columns, records, made.most[long], least=made.least)
    for size in range(12, made.end, 4) if long else made.sizes:
        rows = (made.larger(at, size) for at in range(size))
        yield dict(zip(columns, zip(*rows, strict=True), strict=True))


# By mechanism, the columns on which every k is tried, and further settings: variant, columns, parameters.
_ONE_COLUMN, _TWO, _TOWNS, _KINDS, _CARDS = _TABLES
_Further = Sequence[tuple[str, tuple[str, ...], Mapping[str, object]]]
_SETTINGS: Mapping[type[Any], tuple[tuple[str, ...], _Further]] = {
    Partition: (
        _ONE_COLUMN,
        [
            ("k = 3, mean, grid", _ONE_COLUMN, {"k": 3, "statistic": "mean", "bounds": "grid"}),
            ("k = 3, multiset, grid", _ONE_COLUMN, {"k": 3, "statistic": "multiset", "bounds": "grid"}),
            ("k = 2, for packing", _ONE_COLUMN, {"k": 2, "goal": "packing", "capacity": 20}),
            ("k = 2, 2 numbers", _TWO, {"k": 2}),
            ("k = 2, public towns", _TOWNS, {"k": 2}),
        ],
    ),
    FullDomain: (
        _ONE_COLUMN,
        [
            ("k = 2, 2 columns", _KINDS, {"k": 2, "statistic": "multiset", "alpha": 0.25}),
            ("k = 3, public towns", _TOWNS, {"k": 3, "max_suppressed": 0.5}),
        ],
    ),
    UtilityClusters: (
        _KINDS,
        [
            ("k = 2, limits, towns", _TOWNS, {"k": 2, "limits": {"weight": 4}, "max_suppressed": 1}),
            ("k = 2 persons", _CARDS, {"k": 2}),
            ("k = 3, multiset", _KINDS, {"k": 3, "statistic": "multiset"}),
            # The published forms keep k records too: what they lose is utility, and the count of persons.
            ("published-greedy, k = 3", _KINDS, {"k": 3, "method": "published-greedy"}),
            ("published-density, k = 3", _KINDS, {"k": 3, "method": "published-density"}),
        ],
    ),
}


def settings_of(kind: type[Any], long: bool) -> Iterator[ClassSetting]:
    own = kind in _SETTINGS
    main, further = _SETTINGS.get(kind, (_ONE_COLUMN, ()))
    every_k = [(f"k = {k}", main, {"k": k}) for k in ((2, 3, 5) if long and own else (2, 3))]
    for variant, columns, parameters in (*every_k, *further):
        yield ClassSetting(
            variant=variant,
            columns=columns,
            parameters={"name": kind.name, **parameters},
            tables=tables_of(columns, long),
            person="card" if columns == _CARDS else None,
        )


def check_any(kind: type[Any], long: bool) -> Iterator[Verdict]:
    """Count classes in every setting of a mechanism, then test for an epsilon, and the order of rows."""
    for setting in settings_of(kind, long):
        yield examine(setting)
    setting = ClassSetting(variant="", parameters={"name": kind.name, "k": 2}, expected=VOID)
    yield examine_epsilon(setting, {"weight": [0.0, 0.0, 1.0, 16.0]}, {"weight": [0.0, 0.0, 16.0, 16.0]})
    setting = replace(setting, variant="order of rows", parameters={"name": kind.name, "k": 3}, expected=HOLDS)
    yield examine_order(setting, {"weight": [0.0, 1.0, 1.0]})


CHECKS: Checks = {kind: partial(check_any, kind) for kind in _SETTINGS}
