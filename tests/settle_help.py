# SPDX-License-Identifier: Apache-2.0
"""What tests of settling share: a published dataset, plans written by hand, and what every settlement must keep."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from tests.builders import QUASI, a_policy
from tests.certificates_help import certificate_of

import dunnage as dn
from dunnage.ledger import Ledger
from dunnage.model.domains import Numeric
from dunnage.model.laws import Cells
from dunnage.noise.source import Noise
from dunnage.planning.models import PackingModel
from dunnage.planning.plan import Plan, Slots
from dunnage.planning.trucks import Truck
from dunnage.samples import draw_weights, package_setting
from dunnage.settle import Settlement, apply, matched_records

FOUR = (10, 20, 60, 80)
"""Classes {10, 20} and {60, 80} at k = 2."""
WEIGHT = {"role": QUASI, "kind": "numeric", "domain": [0, 1000], "unit": "kg", "doubling": 250}
VOLUME = {"role": QUASI, "kind": "numeric", "domain": [0, 100], "unit": "m3", "doubling": 25}


def truck(*rooms: float, name: str = "truck", **more: Any) -> Truck:
    return Truck(name=name, capacity=dict(zip(("weight", "volume"), rooms, strict=False)), **more)


def published(
    weights: Sequence[Any],
    k: int,
    statistic: str = "multiset",
    *,
    roles: Mapping[str, Any] | None = None,
    **columns: Any,
) -> dn.Release:
    """Publish weights; further columns are public, unless another role is given."""
    return Published({"weight": weights, **columns}, k, statistic=statistic, roles=roles).release


def setting_weights(name: str, seed: int) -> list[float]:
    return draw_weights(package_setting(name), np.random.default_rng(seed)).tolist()


class Published:
    """A published dataset; plans are written by the order of its records."""

    def __init__(
        self,
        columns: Mapping[str, Sequence[Any]] | Sequence[Any],
        k: int = 2,
        *,
        name: str = "partition",
        statistic: str = "multiset",
        mechanism: Any = None,  # releases by itself, instead of a policy's
        roles: Mapping[str, Any] | None = None,  # of columns that are neither a weight nor a volume, else public
        **policy: Any,
    ) -> None:
        named = columns if isinstance(columns, Mapping) else {"weight": columns}
        kinds = {"weight": WEIGHT, "volume": VOLUME, **{n: {"role": "public"} for n in named}, **(roles or {})}
        kinds |= {n: {"role": kind} for n, kind in kinds.items() if isinstance(kind, str)}
        kinds |= {n: kind for n, kind in (("weight", WEIGHT), ("volume", VOLUME)) if n not in (roles or {})}
        attributes = {"parcel": {"role": "identifier"}, **{n: kinds[n] for n in named}}
        draws = {"name": name, "k": k, "statistic": statistic} | (
            {"max_suppressed": 0} if name == "full-domain" else {}
        )
        num = len(next(iter(named.values())))
        table = pa.table({"parcel": [f"=CANARY{i}" for i in range(num)], **{n: list(c) for n, c in named.items()}})
        self.data = dn.load(table, a_policy(draws, attributes, **{"small": "suppress", **policy}))
        if mechanism is None:
            self.release, self.key = dn.publish(self.data, ledger=":memory:")
        else:
            self.release, self.key = mechanism.release(self.data, ledger=Ledger(":memory:"), noise=Noise())
        self.record = matched_records(self.data, self.release, self.key)
        self.quantities = {n: kinds[n]["unit"] for n in named if "unit" in kinds[n]}
        self.amounts = np.column_stack([self.data.numbers(n)[self.record] for n in self.quantities])
        self.weights = self.amounts[:, 0]

    def plan(
        self,
        bins: Sequence[int],
        trucks: float | Sequence[Truck] = 100,
        names: Sequence[str] | None = None,
        **more: Any,
    ) -> Plan:
        """Write a plan: the bin of each record, and trucks or what each of one kind holds of everything."""
        return self._plan(max(bins) + 1, trucks, names, bin_of_row=np.array(bins)[self.record], **more)

    def sealed(self, table: Sequence[Sequence[int]], capacity: float, **more: Any) -> Plan:
        """Write a sealed plan: how many rows of each class (columns) a bin (lines) takes."""
        lines = [(b, c, n) for b, line in enumerate(table) for c, n in enumerate(line) if n]
        slots = Slots(*(np.array(column, dtype=np.int64) for column in zip(*lines, strict=True)))
        return self._plan(len(table), capacity, None, bin_of_row=None, slots=slots, **more)

    def _plan(
        self,
        num_bins: int,
        trucks: float | Sequence[Truck],
        names: Sequence[str] | None,
        count: int | None = None,
        **more: Any,
    ) -> Plan:
        if isinstance(trucks, int | float):
            trucks = [Truck(name="truck", capacity=dict.fromkeys(self.quantities, trucks), count=count)]
        return Plan(
            release=self.release.certificate.digest,
            truck_of_bin=tuple(names or (trucks[0].name,) * num_bins),
            trucks=tuple(trucks),
            model=PackingModel(name="by hand"),
            bound=1,
            seconds=0.0,
            quantities=self.quantities,
            **more,
        )

    def apply(self, plan: Any, **more: Any) -> Settlement:
        more.setdefault("noise", Noise(seed=1))
        return apply(plan, self.data, self.release, self.key, **more)

    def settle(self, plan: Any, **more: Any) -> Settlement:
        """Apply a plan and check the settlement by itself."""
        done = self.apply(plan, **more)
        self.check(done)
        return done

    def by_record(self, done: Settlement) -> list[int]:
        return done.bin_of_row[np.argsort(self.record)].tolist()

    def column(self, name: str) -> list[Any]:
        return self.release.data.column(name).to_pylist()

    def loads(self, bins: Sequence[int], num_bins: int) -> list[list[Fraction]]:
        """Add up amounts as the decimals that they print as."""
        loads = [[Fraction(0)] * self.amounts.shape[1] for _ in range(num_bins)]
        for row, bin_ in enumerate(bins):
            if bin_ >= 0:
                for quantity, amount in enumerate(self.amounts[row].tolist()):
                    loads[bin_][quantity] += Fraction(repr(amount))
        return loads

    def check(self, done: Settlement) -> None:
        """Every row once, loads add up, feasible means that all fits, trucks are there, values are kept apart."""
        table = done.loading.to_pydict()
        rows = sorted(set(zip(table["row"], table["bin"], strict=True)))
        assert [row for row, _ in rows] == list(range(len(self.release)))
        assert [bin_ for _, bin_ in rows] == done.bin_of_row.tolist()
        assert sorted(table["source_row"]) == sorted(self.key.table.column("source_row").to_pylist())
        assert table["parcel"] == [f"=CANARY{source - 1}" for source in table["source_row"]]
        kinds = {kind.name: kind for kind in done.plan.trucks}
        loads = self.loads(done.bin_of_row.tolist(), len(done.truck_of_bin))
        names = list(done.quantities)
        rooms = [[Fraction(repr(float(kinds[name].capacity[q]))) for q in names] for name in done.truck_of_bin]
        assert [[float(load) for load in line] for line in loads] == done.final_loads.tolist()
        assert [[float(room) for room in line] for line in rooms] == done.final_capacities.tolist()
        fits = all(a <= b for line, room in zip(loads, rooms, strict=True) for a, b in zip(line, room, strict=True))
        assert done.feasible == fits
        for name, used in Counter(done.truck_of_bin).items():
            assert kinds[name].count is None or used <= kinds[name].count
        for column in (done.plan.by, done.plan.apart):
            together = defaultdict(set)
            for value, bin_ in zip(
                self.column(column) if column else (), done.bin_of_row.tolist(), strict=bool(column)
            ):
                together[bin_].add(value)
            assert all(len(values) == 1 for bin_, values in together.items() if bin_ >= 0)


def cut(
    lower: int, upper: int, resolution: str, epsilon: str, *, confidence: str = "0.9", law: str = "laplace", **more: Any
) -> Cells:
    """Noise on weights between two bounds."""
    domain = Numeric(lower=lower, upper=upper, resolution=resolution, unit="kg")
    borders = [Fraction(border) for border in more.get("borders", ())]
    return Cells.cut(domain, borders, law=law, epsilon=Fraction(epsilon), confidence=Fraction(confidence))


def noisy_release(
    columns: Mapping[str, tuple[Cells, Any]],
    *,
    public: Mapping[str, Sequence[str]] | None = None,
    measures: Mapping[str, Any] | None = None,
    **more: Any,
) -> dn.Release:
    """Make a noisy release of values that already are noisy."""
    public = public or {}
    data: dict[str, Any] = {"row": np.arange(len(np.asarray(next(iter(columns.values()))[1]))), **public}
    for name, (cells, seen) in columns.items():
        lower, upper = cells.interval(seen)
        data |= {name: np.asarray(seen, dtype=np.float64), f"{name}_lower": lower, f"{name}_upper": upper}
    noise = {"noise": {name: cells.describe() for name, (cells, _) in columns.items()}}
    body = {
        "kind": "rows",
        "dataset": "parcels",
        "guarantee": {"model": "dp"},
        "basis": "proved",
        "mechanism": {"name": "noisy-values"},
        "attributes": [
            *({"name": name, "role": "public"} for name in public),
            *(
                {"name": name, "role": "quasi-identifier", "kind": "numeric", "domain": cells.domain.describe()}
                for name, (cells, _) in columns.items()
            ),
        ],
        "measures": {"records": len(data["row"]), **(noise if measures is None else measures)},
    }
    return dn.Release(certificate=certificate_of(body), data=pa.table({**data, **more}))
