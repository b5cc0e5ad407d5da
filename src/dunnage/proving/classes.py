# SPDX-License-Identifier: Apache-2.0
"""k-anonymity: the smallest class that a mechanism ever releases, counted from outside.

Every table that a small domain allows, up to some records, is released by the real mechanism, and more of larger ones.
What comes out is examined by a few lines of its own: rows that look alike in all columns that an attacker may know are
counted, by the records (or persons) that the owner's key says they came from, so that a row that is released twice
counts once. ``verify`` is not asked, nor any figure of the certificate.

A class hides nobody whose row can be told by its place in the file: the same table is released over and over, and the
rows must come in every order, one as often as another.

That a release is k-anonymous bounds no epsilon. The last check of each mechanism shows it: two tables that differ in
one record lead to releases that cannot be mistaken for each other.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from dunnage.errors import Refusal
from dunnage.guarantees import KAnonymity, Neighbours
from dunnage.io import load
from dunnage.ledger import Ledger
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.partition import Partition
from dunnage.noise import Noise
from dunnage.policy import Policy
from dunnage.proving.statistical import UNLIKELY, agrees
from dunnage.proving.verdict import HOLDS, UNBOUNDED, VOID, Checks, Verdict
from dunnage.publication import Publication
from dunnage.publishing import mechanism_of

Table = Mapping[str, Sequence[Any]]
"""Columns by name."""
Record = tuple[Any, ...]

Attribute = Mapping[str, object]
WEIGHT: Attribute = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 16], "resolution": 1, "doubling": 2}
KIND: Attribute = {"role": "quasi-identifier", "kind": "category", "domain": ["box", "bag"]}
TOWN: Attribute = {"role": "public"}
CARD: Attribute = {"role": "identifier"}
_REPEATS = 4
_ORDERINGS = 200  # releases of three rows: each of their 6 orders is then expected 33 times


@dataclass(frozen=True, kw_only=True)
class Setting:
    variant: str  # What sets it apart
    attributes: Mapping[str, Mapping[str, object]]  # The columns, as a policy has them
    parameters: Mapping[str, object]  # The mechanism table of the policy
    tables: Iterable[Table]  # What is released
    expected: str = HOLDS  # The verdict that must come out
    person: str | None = None  # The column that tells persons apart, if k counts them

    def policy(self) -> Policy:
        document: dict[str, object] = {
            "dataset": "proof",
            "protects": "package",
            "small": "suppress",
            "attributes": {name: dict(attribute) for name, attribute in self.attributes.items()},
            "mechanism": dict(self.parameters),
        }
        if self.person is not None:
            document["contribution"] = {"person": self.person}
        return Policy.from_dict(document)


@dataclass
class _Seen:
    releases: int = 0
    refusals: int = 0
    smallest: int | None = None

    def add(self, size: int) -> None:
        self.releases += 1
        self.smallest = size if self.smallest is None else min(size, self.smallest)


def examine(setting: Setting, mechanism: Any = None) -> Verdict:
    """Release every table, and compare the smallest class that was met with the promised k."""
    started = time.perf_counter()
    policy = setting.policy()
    made: Any = mechanism_of(policy) if mechanism is None else mechanism
    promise = made.promise(policy.schema)
    claimed = promise.guarantee.k if isinstance(promise.guarantee, KAnonymity) else 0
    seen, noise = _Seen(), Noise()
    sensitive = {attribute.name for attribute in policy.schema.sensitive}
    for table in setting.tables:
        dataset = load(pa.table({name: list(column) for name, column in table.items()}), policy)
        try:
            publication = made.release(dataset, ledger=Ledger(":memory:"), noise=noise)
        except Refusal:
            seen.refusals += 1
        else:
            seen.add(smallest_class(publication, sensitive=sensitive, person=setting.person))
    measured = float(seen.smallest or 0)
    unit = "persons" if setting.person else "records"
    return Verdict.of(
        made.name,
        setting.variant,
        basis=promise.basis,
        claimed=float(claimed),
        measured=measured,
        quantity="k",
        method=f"{seen.releases:,} releases counted from outside, {seen.refusals:,} tables refused",
        expected=setting.expected,
        sentence=f"The smallest class of {seen.releases:,} releases has {measured:g} {unit}; promised are {claimed}.",
        started=started,
    )


def looks(publication: Publication, *, sensitive: Iterable[str] = ()) -> list[str]:
    """Return what each released row shows of its record: every column but its number and sensitive ones."""
    data = publication.release.data
    shown = data.select([name for name in data.column_names if name not in {"row", *sensitive}])
    return [repr(tuple(row.values())) for row in shown.to_pylist()]


def smallest_class(publication: Publication, *, sensitive: Iterable[str] = (), person: str | None = None) -> int:
    """Count the records, or persons, behind rows that look alike, and return the fewest."""
    key = publication.key.table.to_pylist()
    shown = looks(publication, sensitive=sensitive)
    # A record that was released in several rows counts for one of them.
    look_of = {line["source_row"]: shown[line["row"]] for line in key}
    behind = {(look_of[line["source_row"]], line[person or "source_row"]) for line in key}
    sizes = Counter(look for look, _ in behind)
    members = publication.release.members
    listed = Counter(members.column("class_id").to_pylist()) if members is not None else Counter[int]()
    return min([*(sizes[look] for look in set(shown)), *listed.values()], default=0)


def examine_epsilon(setting: Setting, one: Table, other: Table, mechanism: Any = None) -> Verdict:
    """Show that two tables that differ in one record lead to releases that cannot be mistaken for each other."""
    started = time.perf_counter()
    policy = setting.policy()
    made: Any = mechanism_of(policy) if mechanism is None else mechanism
    promise = made.promise(policy.schema)
    claim = promise.true_loss(Neighbours.REPLACE_ONE)
    found = [_outputs(made, load(pa.table(dict(table)), policy)) for table in (one, other)]
    apart = not found[0] & found[1]
    return Verdict.of(
        made.name,
        f"{setting.variant}, no epsilon" if setting.variant else "no epsilon",
        basis=promise.basis,
        claimed=UNBOUNDED if claim.epsilon is None else float(claim.epsilon),
        measured=UNBOUNDED if apart else 0.0,
        method=f"two tables that differ in one record, each released {_REPEATS} times",
        expected=setting.expected,
        sentence="A k-anonymous release bounds no epsilon: one record can change what is released for certain.",
        started=started,
    )


def _outputs(mechanism: Any, dataset: Any) -> set[tuple[str, ...]]:
    noise, ledger = Noise(), Ledger(":memory:", again=True)
    return {tuple(sorted(looks(mechanism.release(dataset, ledger=ledger, noise=noise)))) for _ in range(_REPEATS)}


def examine_order(setting: Setting, table: Table, mechanism: Any = None) -> Verdict:
    """Release one table over and over, and count the records that a row may be, by its place and what it shows."""
    started = time.perf_counter()
    policy = setting.policy()
    made: Any = mechanism_of(policy) if mechanism is None else mechanism
    promise = made.promise(policy.schema)
    dataset = load(pa.table(dict(table)), policy)
    orders, behind = _orders(made, dataset)
    every = itertools.permutations(range(len(dataset)))
    even = agrees(orders, dict.fromkeys(every, 1 / math.factorial(len(dataset)))) >= UNLIKELY
    problems = () if even else ("some orders of the released rows are likelier than others",)
    told = "A row's place in the release tells nothing of its record: all orders of rows are equally likely."
    return Verdict.of(
        made.name,
        setting.variant,
        basis=promise.basis,
        claimed=float(promise.guarantee.k),
        measured=float(min(len(records) for records in behind.values())),
        quantity="k",
        method=f"{len(dataset)} records released {_ORDERINGS} times, their order read from the owner's key",
        expected=setting.expected,
        sentence=told if even else "The order of the released rows tells which record is which.",
        started=started,
        problems=problems,
    )


def _orders(mechanism: Any, dataset: Any) -> tuple[Counter[tuple[int, ...]], dict[tuple[int, str], set[int]]]:
    """Return how often rows came in each order, and which records a row of some place and look came from."""
    noise = Noise()
    orders, behind = Counter[tuple[int, ...]](), defaultdict[tuple[int, str], set[int]](set)
    for _ in range(_ORDERINGS):
        publication = mechanism.release(dataset, ledger=Ledger(":memory:"), noise=noise)
        record_of = {line["row"]: line["source_row"] for line in publication.key.table.to_pylist()}
        orders[tuple(record_of[row] for row in sorted(record_of))] += 1
        for row, look in enumerate(looks(publication)):
            behind[row, look].add(record_of[row])
    return orders, behind


# Tables


def every_table(names: Sequence[str], records: Sequence[Record], most: int, *, least: int = 2) -> Iterator[Table]:
    """Yield every multiset of some records, from ``least`` to ``most`` of them."""
    for size in range(least, most + 1):
        for chosen in itertools.combinations_with_replacement(records, size):
            yield dict(zip(names, zip(*chosen, strict=True), strict=True))


def larger_tables(names: Sequence[str], record: Callable[[int, int], Record], sizes: Iterable[int]) -> Iterator[Table]:
    """Yield a table of each size; ``record`` makes the record of a number, in a table of a size."""
    for size in sizes:
        yield dict(zip(names, zip(*(record(at, size) for at in range(size)), strict=True), strict=True))


def _scattered(at: int, size: int) -> float:
    """Return one of 17 weights, without pattern and with many that are equal."""
    return float((at * at * 7 + at * size + size) % 17 // (1 + size % 3))


def _weights(long: bool, points: Sequence[float] = (0.0, 1.0, 16.0)) -> Iterator[Table]:
    yield from every_table(["weight"], [(point,) for point in points], 9 if long else 6)
    sizes = range(12, 120, 4) if long else (13, 29, 60)
    yield from larger_tables(["weight"], lambda at, size: (_scattered(at, size),), sizes)


def _pairs(long: bool) -> Iterator[Table]:
    corners = list(itertools.product((0.0, 16.0), repeat=2))
    yield from every_table(["weight", "height"], [*corners, (8.0, 8.0)][: 5 if long else 3], 6)
    sizes = range(12, 80, 4) if long else (13, 29)
    yield from larger_tables(
        ["weight", "height"], lambda at, size: (_scattered(at, size), _scattered(size - at, size + 1)), sizes
    )


def _towns(long: bool) -> Iterator[Table]:
    records = [(0.0, "north"), (16.0, "north"), (0.0, "south"), (16.0, "south")]
    yield from every_table(["weight", "town"], records, 7 if long else 5)
    sizes = range(12, 60, 4) if long else (13, 29)
    yield from larger_tables(["weight", "town"], lambda at, size: (_scattered(at, size), "ns"[at % 2]), sizes)


def _kinds(long: bool) -> Iterator[Table]:
    records = [(0.0, "box"), (16.0, "box"), (1.0, "bag"), (16.0, "bag")][: 4 if long else 3]
    yield from every_table(["weight", "kind"], records, 7 if long else 6)
    sizes = range(12, 60, 4) if long else (13, 29)
    yield from larger_tables(
        ["weight", "kind"], lambda at, size: (_scattered(at, size), ("box", "bag")[at * size % 3 % 2]), sizes
    )


def _cards(long: bool) -> Iterator[Table]:
    records = [(0.0, "A"), (16.0, "A"), (0.0, "B"), (16.0, "C")]
    yield from every_table(["weight", "card"], records, 6 if long else 5, least=3)
    sizes = range(12, 60, 4) if long else (13, 29)
    yield from larger_tables(["weight", "card"], lambda at, size: (_scattered(at, size), f"card {at % 5}"), sizes)


_THREE = {"weight": [0.0, 1.0, 1.0]}
_ONE, _OTHER = {"weight": [0.0, 0.0, 1.0, 16.0]}, {"weight": [0.0, 0.0, 16.0, 16.0]}


def _partition(long: bool) -> Iterator[Setting]:
    name = {"name": Partition.name}
    weight = {"weight": WEIGHT}
    for k in (2, 3, *([5] if long else [])):
        yield Setting(variant=f"k = {k}", attributes=weight, parameters={**name, "k": k}, tables=_weights(long))
    for told in ("mean", "multiset"):
        parameters = {**name, "k": 3, "statistic": told, "bounds": "grid"}
        yield Setting(variant=f"k = 3, {told}, grid", attributes=weight, parameters=parameters, tables=_weights(long))
    parameters = {**name, "k": 2, "goal": "packing", "capacity": 20}
    yield Setting(variant="k = 2, for packing", attributes=weight, parameters=parameters, tables=_weights(long))
    both = {"weight": WEIGHT, "height": WEIGHT}
    yield Setting(variant="k = 2, 2 numbers", attributes=both, parameters={**name, "k": 2}, tables=_pairs(long))
    towns = {"weight": WEIGHT, "town": TOWN}
    yield Setting(variant="k = 2, public towns", attributes=towns, parameters={**name, "k": 2}, tables=_towns(long))


def _full_domain(long: bool) -> Iterator[Setting]:
    name = {"name": FullDomain.name}
    for k in (2, 3, *([5] if long else [])):
        parameters = {**name, "k": k}
        yield Setting(variant=f"k = {k}", attributes={"weight": WEIGHT}, parameters=parameters, tables=_weights(long))
    kinds = {"weight": WEIGHT, "kind": KIND}
    parameters = {**name, "k": 2, "statistic": "multiset", "alpha": 0.25}
    yield Setting(variant="k = 2, 2 columns", attributes=kinds, parameters=parameters, tables=_kinds(long))
    towns = {"weight": WEIGHT, "town": TOWN}
    parameters = {**name, "k": 3, "max_suppressed": 0.5}
    yield Setting(variant="k = 3, public towns", attributes=towns, parameters=parameters, tables=_towns(long))


def _utility_clusters(long: bool) -> Iterator[Setting]:
    name = {"name": UtilityClusters.name}
    kinds = {"weight": WEIGHT, "kind": KIND}
    for k in (2, 3, *([5] if long else [])):
        yield Setting(variant=f"k = {k}", attributes=kinds, parameters={**name, "k": k}, tables=_kinds(long))
    towns = {"weight": WEIGHT, "town": TOWN}
    parameters = {**name, "k": 2, "limits": {"weight": 4}, "max_suppressed": 1}
    yield Setting(variant="k = 2, limits, towns", attributes=towns, parameters=parameters, tables=_towns(long))
    persons = {"weight": WEIGHT, "card": CARD}
    yield Setting(
        variant="k = 2 persons", attributes=persons, parameters={**name, "k": 2}, tables=_cards(long), person="card"
    )
    # As published, k records are kept too: what these forms lose is utility, and the count of persons.
    for method in ("published-greedy", "published-density"):
        parameters = {**name, "k": 3, "method": method}
        yield Setting(variant=f"{method}, k = 3", attributes=kinds, parameters=parameters, tables=_kinds(long))


def _any(kind: type[Any], long: bool) -> Iterator[Setting]:
    for k in (2, 3):
        parameters = {"name": kind.name, "k": k}
        yield Setting(variant=f"k = {k}", attributes={"weight": WEIGHT}, parameters=parameters, tables=_weights(long))


_SETTINGS: Mapping[type[Any], Callable[[bool], Iterator[Setting]]] = {
    Partition: _partition,
    FullDomain: _full_domain,
    UtilityClusters: _utility_clusters,
}


def check_any(kind: type[Any], long: bool) -> Iterator[Verdict]:
    """Count classes in every setting of a mechanism, then look for an epsilon, and at the order of rows."""
    for setting in _SETTINGS.get(kind, partial(_any, kind))(long):
        yield examine(setting)
    name, weight = kind.name, {"weight": WEIGHT}
    setting = Setting(variant="", attributes=weight, parameters={"name": name, "k": 2}, tables=(), expected=VOID)
    yield examine_epsilon(setting, _ONE, _OTHER)
    setting = replace(setting, variant="order of rows", parameters={"name": name, "k": 3}, expected=HOLDS)
    yield examine_order(setting, _THREE)


CHECKS: Checks = {kind: partial(check_any, kind) for kind in _SETTINGS}
