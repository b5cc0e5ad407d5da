# SPDX-License-Identifier: Apache-2.0
"""Releases of rows, one for each record: in classes of records that look alike, or with noise on their numbers.

Every printed figure of classes is recomputed here from the tables; the mechanism answers what depends on how classes
were formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dunnage.arrays import FloatArray, IntArray
from dunnage.exact import bounded_text, exact
from dunnage.folds import ROW
from dunnage.model.certificate import Certificate, NoiseCell, RowMeasures, SlotMeasures
from dunnage.model.domains import CodedDomain, Graph, Numeric, Tree
from dunnage.model.guarantees import KAnonymity, SampledDP
from dunnage.model.hierarchies import IntervalHierarchy, NodeHierarchy, hierarchy_of
from dunnage.model.measures import (
    class_sizes,
    ranked,
    sensitive_measures,
    set_widths,
    size_figures,
    size_measures,
    sort_key,
)
from dunnage.model.schema import COUNTS_SUFFIX, DIAMETER_SUFFIX
from dunnage.release.kinds import (
    GENERALISED,
    PUBLIC,
    SENSITIVE,
    Columns,
    Kind,
    comparable,
    domain_of,
    fill,
    floats,
    generalised,
    is_number,
    numeric_domain,
    require,
    with_role,
)
from dunnage.tables.columns import COUNTS_TYPE, SET_TYPE, is_set, is_text
from dunnage.tables.finest import CountingFold, Finest
from dunnage.text import HOURS, percent, percent_at_most

if TYPE_CHECKING:
    from dunnage.mechanisms.classes import ClassRelease
    from dunnage.release import Release

TOLERANCE = 1e-9  # of figures that are recomputed
MAX_LINES = 24  # classes, cells of noise or estimates in a list for people
NOT_CHECKED = (
    "that the rows are the owner's true records, and all of them",
    "that domains and hierarchies were chosen without looking at the data",
    "that the lists of what is in clear and of what is assumed are complete",
    "that the order of rows is random",
    "that the ledger has the spend, and what else was released about the same records",
)
NOISE_NOT_CHECKED = ("that the noise follows the stated law and is new for every row and column",)
SAMPLE_NOT_CHECKED = (
    "that the sample has the stated rate, is new for this release, and is kept secret",
    "that the levels were chosen as stated, on a second such sample, and rows left out for no other reason",
)
_SAMPLED, _WHOLE = (f"guarantee.model~{kind.model}" for kind in (SampledDP, KAnonymity))
_NOT_CHECKED_OF_CLASSES = (
    (NOT_CHECKED[0], _WHOLE),
    ("that the rows are the owner's true records", _SAMPLED),
    *((words,) for words in NOT_CHECKED[1:]),
    *((words, _SAMPLED) for words in SAMPLE_NOT_CHECKED),
    (*NOISE_NOT_CHECKED, "measures.noise", "measures.published_intervals"),
    ("that each class has records of as many persons as stated: only the owner's key names them", "measures.persons"),
    ("that statistics of the true records changed as little as requested", "mechanism.keep"),
)


class NoisyKind(Kind):
    table_words: ClassVar = {
        "data": "one line for each released record",
        "classes": "one line for each class of records that look alike, with its size",
        "members": "one line for each class member: the values in the class, sorted so that nothing links them to rows",
    }
    unchecked: ClassVar = (*((words,) for words in NOT_CHECKED), NOISE_NOT_CHECKED)

    def tables(self, release: Release) -> dict[str, Columns]:
        as_is: Columns = dict.fromkeys(with_role(release, PUBLIC, SENSITIVE))
        noisy = {f"{name}{end}": pa.float64() for name in generalised(release) for end in ("", "_lower", "_upper")}
        return {"data": {"row": pa.int64(), **as_is, **noisy}}

    def recount(self, release: Release) -> Iterator[str]:
        _check_unchanged(release)
        yield _check_rows(release)
        require(release.certificate.rows.records == len(release), "certificate.json: the number of records is wrong")
        for name in generalised(release):
            domain = numeric_domain(release, name)
            ends = (f"{name}_lower", f"{name}_upper")
            missed = f"data: an interval of {name} misses its value or leaves the public domain"
            off = f"data: a value of {name} is not on the public grid"
            each = (EachInterval(name, failure, ends, domain, failure is off) for failure in (missed, off))
            check_each(release, list(each))

    def cautions(self, release: Release) -> tuple[str, ...]:
        stated = sorted((release.certificate.rows.noise or {}).items())  # in the order of a file
        if not stated:
            return ()
        from dunnage.model.laws import Cells

        laws = {
            name: Cells.of(numeric_domain(release, name), [cell.plain() for cell in cells]) for name, cells in stated
        }
        return tuple(
            f"{name} is mostly noise: most of its values are further from the truth than the middle of its range is. "
            "Ask the owner for a larger epsilon, or for a profile of sizes."
            for name, cells in laws.items()
            if cells.is_noise
        )

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        noisy, attributes = _noisy_names(release.certificate.rows), release.attributes
        fixed = {
            "row": "number of the released row; the order is random",
            "class_id": "class of records that look alike"
            + ("; -1 for a noisy row, which is in no class" if noisy else ""),
            "size": "number of released records in the class",
        }
        if name in fixed:
            return fixed[name]
        endings = {"_lower": "smallest possible", "_upper": "largest possible", "_mean": "mean over the class of"}
        for ending, words in endings.items():
            base = name[: -len(ending)]
            if name.endswith(ending) and base in attributes:
                closed = " (closed interval)" if ending != "_mean" else ""
                if base in noisy and table == "data":
                    confidence = _confidence(release)
                    sure = f" at confidence {confidence}"
                    sure = f"; of a noisy row, at confidence {confidence}" if release.classes is not None else sure
                    sure = sure if confidence else "; without a confidence, the noisy value itself"
                    words, closed = f"{ending[1:]} end of the interval for", f" (closed interval{sure})"
                return f"{words} {base}{_in_unit(base, release)}{closed}{_clamped(base, release)}"
        if name in noisy:
            return f"{name}{_in_unit(name, release)} with noise, on the public grid{_clamped(name, release)}"
        role = attributes[name].role if name in attributes else ""
        if role in (PUBLIC, SENSITIVE):
            code = getattr(domain_of(release, name), "shortened", "") if attributes[name].domain else ""
            how = f"shortened as in {code}" if code else "released unchanged"
            return f"{role} attribute, {how}{_clamped(name, release)}"
        derived = {
            DIAMETER_SUFFIX: "longest of the shortest paths between the vertices in",
            COUNTS_SUFFIX: "how many records of the class have each value of",
        }
        for suffix, words in derived.items():
            if name.endswith(suffix) and role == "" and (base := name.removesuffix(suffix)) in attributes:
                return f"{words} {base}"
        if role == GENERALISED and is_set(release.tables[table].schema.field(name).type):
            return f"sorted set of the values of {name} that occur in the class"
        if role == GENERALISED and table != "members":
            return f"{name} or its generalisation: a node of its public hierarchy"
        return f"{name} of a class member{_clamped(name, release)}"

    def readme(self, release: Release, columns: str) -> str:
        sample = snippet = plan = ""
        if release.certificate.guarantee.model == SampledDP.model and not _noisy_names(release.certificate.rows):
            none = " This time there are none." if not len(release) else ""
            sample = (
                "\nRows come from a secret sample: a record is here only if it was sampled and enough others look "
                f"like it.{none}\n"
            )
        if any(is_set(item.type) for item in release.data.schema):
            sets = [item.name for item in release.data.schema if is_set(item.type) and is_text(item.type.value_type)]
            snippet = fill("rows-sets", names=", ".join(f'"{name}"' for name in sets[:2]))
        elif any(release.attributes[name].unit.lower() not in HOURS for name in release.quantities):  # there are loads
            plan = fill("rows-plan")
        intervals = _interval_words(release) + _label_words(release)
        return fill("rows", sample=sample, columns=columns, intervals=intervals, snippet=snippet, plan=plan)

    def figures(self, release: Release) -> list[str]:
        measures = release.certificate.rows
        if measures.noise is None:
            return []
        return [f"Records     {measures.records}", *_noise_lines(measures.noise)]

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        measures = certificate.rows
        noisy = num_rows - measures.records
        return [f"Records   {measures.records} released" + (f", {noisy} more with noise" if noisy else "")]


def _check_unchanged(release: Release) -> None:
    wrong = "certificate.json: unchanged sensitive columns, which differential privacy does not cover"
    require(not with_role(release, SENSITIVE), wrong)


def _check_rows(release: Release) -> str:
    check_each(release, [EachRow("row", "data: column row is not 0, 1, 2 ...", (ROW,))])
    return f"{release.data.num_rows} rows"


@dataclass(frozen=True)
class EachRow:
    """A check of a column that each row passes or fails on its own. This one: it counts the rows from 0."""

    name: str
    failure: str
    more: tuple[str, ...] = ()  # other columns

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name, *self.more)

    def holds(self, rows: pa.Table) -> bool:
        return bool(np.array_equal(rows.column(self.name).to_numpy(), rows.column(ROW).to_numpy()))


@dataclass(frozen=True)
class EachInterval(EachRow):
    """Noisy values lie on the grid, inside their intervals, and those in the domain."""

    domain: Numeric | None = None
    on_grid: bool = False

    def holds(self, rows: pa.Table) -> bool:
        assert self.domain is not None
        value, lower, upper = (floats(rows, name) for name in self.columns)
        if self.on_grid:
            return bool(self.domain.on_grid(value).all())
        inside = self.domain.contains(lower) & self.domain.contains(upper) & (lower <= value) & (value <= upper)
        return bool(inside.all())


@dataclass(frozen=True)
class ChecksFold:
    """Find which checks fail for any row."""

    checks: tuple[EachRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for check in self.checks for name in check.columns))

    def start(self) -> set[int]:
        return set()

    def add(self, state: set[int], batch: pa.RecordBatch) -> None:
        rows = pa.Table.from_batches([batch])
        state.update(number for number, check in enumerate(self.checks) if not check.holds(rows))

    def merge(self, state: set[int], other: set[int]) -> None:
        state |= other

    def dump(self, state: set[int]) -> bytes:
        return bytes(sorted(state))

    def load(self, data: bytes) -> set[int]:
        return set(data)


def check_each(release: Release, checks: Sequence[EachRow]) -> None:
    """Check each row of ``data``, wherever it lives."""
    if failed := release.fold(ChecksFold(tuple(checks))):
        require(False, checks[min(failed)].failure)


@dataclass(frozen=True)
class AlikeFold(CountingFold):
    """Count rows of ``data`` that look alike in some columns."""

    columns: tuple[str, ...]
    in_classes: bool  # without rows that are in no class

    def columns_of(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        table = comparable(pa.Table.from_batches([rows]))
        table = table.filter(pc.greater_equal(table.column("class_id"), 0)) if self.in_classes else table
        return {name: table.column(name).combine_chunks() for name in self.columns}


def alike(release: Release, *names: str) -> Finest:
    fold = AlikeFold((*names, "class_id"), release.noisy)
    state = release.fold(fold)
    if not state:  # no rows
        fold.add(state, pa.RecordBatch.from_pylist([], schema=release.data.select(fold.columns).schema))
    return fold.result(state)


def _noise_lines(noise: Mapping[str, list[NoiseCell]]) -> list[str]:
    lines = []
    for name, cell in ((name, cell) for name, cells in noise.items() for cell in cells[:MAX_LINES]):
        sure = "" if not cell.coverage else bounded_text(exact(cell.coverage), up=False, digits=4)
        within = f", within {cell.radius:g} with probability {sure} or more" if sure else ""
        lines.append(f"Noise       {name} {cell.lower:g} to {cell.upper:g}: {cell.law}, epsilon {cell.epsilon}{within}")
    return lines


def _confidence(release: Release) -> str:
    """Return the stated confidence of intervals; empty if there are no intervals."""
    given = release.certificate.mechanism.get("confidence")
    return "" if given in (None, 0) or not exact(str(given)) else str(given)


def _noisy_names(measures: RowMeasures) -> list[str]:
    return list(measures.noise or measures.published_intervals or {})


def _in_unit(name: str, release: Release) -> str:
    unit = release.attributes[name].unit
    if release.attributes[name].clock:
        return " as HH:MM (in Parquet, minutes of the service day)"
    return f" in {unit}" if unit else ""


def _clamped(name: str, release: Release) -> str:
    moved = name in release.attributes and release.attributes[name].outside == "clamp"
    return "; values outside the domain were moved to its nearest end" if moved else ""


def _interval_words(release: Release) -> str:
    if not _noisy_names(release.certificate.rows):
        return "Intervals are closed: both ends are possible."
    beside = "" if release.classes is None else "The interval of a class contains every value of the class.\n"
    sides = f"{beside}A noisy value may lie on either side of the true one."
    if not _confidence(release):
        return f"{sides} There are no intervals around it."
    return (
        f"{sides} Its interval is closed and contains the true value\n"
        "with at least the stated confidence. That all intervals do so at once is far less likely."
    )


def _label_words(release: Release) -> str:
    named = set(generalised(release)) & set(release.data.column_names) - set(release.bounded)
    sets = {name for name in named if is_set(release.data.schema.field(name).type)}
    words = ""
    if named - sets:
        words += (
            " A node stands for every value below it, `*` for any value; the\n"
            "hierarchies are under `attributes` in `certificate.json`."
        )
    if sets:
        words += (
            "\nA set lists every value that occurs in the class: a list in Parquet, `{A,B}` in CSV. There, a comma,\n"
            "brace or backslash inside a value has a backslash before it."
        )
    return words


class ClassesKind(NoisyKind):
    unchecked: ClassVar = _NOT_CHECKED_OF_CLASSES

    def tables(self, release: Release) -> dict[str, Columns]:
        as_is: Columns = dict.fromkeys(with_role(release, PUBLIC, SENSITIVE))
        classes: Columns = {**_class_columns(release)}
        tables: dict[str, Columns] = {
            "data": {"row": pa.int64(), "class_id": pa.int64(), **as_is, **classes},
            "classes": {"class_id": pa.int64(), "size": pa.int64(), **classes},
        }
        if _statistic(release) == "multiset" and not _is_clustered(release):
            values = {name: pa.float64() if is_number(release, name) else pa.string() for name in generalised(release)}
            tables["members"] = {"class_id": pa.int64(), **values}
        return tables

    def recount(self, release: Release) -> Iterator[str]:
        if not isinstance(release.certificate.guarantee, KAnonymity):
            _check_unchanged(release)
        yield _check_rows(release)
        yield _check_k(release)
        yield _check_classes(release)
        yield _check_domains(release)
        if release.members is not None:
            yield _check_members(release, release.members)
        # In clusters, what is not a number is a set or a node of any level.
        by_nodes = not _is_clustered(release) and not all(is_number(release, name) for name in generalised(release))
        if release.certificate.rows.levels is not None or by_nodes:
            yield _check_levels(release)

    def figures(self, release: Release) -> list[str]:
        measures = release.certificate.rows
        size, loss, suppressed = measures.class_size, measures.loss, measures.suppressed
        hidden = f", {suppressed.count} suppressed ({percent(suppressed.share)})" if suppressed is not None else ""
        lines = [f"Records     {measures.records} released{hidden}"]
        if size is not None and loss is not None:
            persons = ", of persons" if measures.persons is not None else ""
            of_rows = ", of released rows" if suppressed is None else ""
            lines += [
                f"k           {measures.k_asked} requested, {measures.k_reached} reached{persons}",
                f"Classes     {measures.classes}; size {size.smallest} smallest, {size.mean:.1f} mean, "
                f"{size.largest} largest",
                f"Loss        {loss.total:.4f} of 1{of_rows} ({loss.metric})",
            ]
        if suppressed is None:  # a sample states only what is released
            levels = ", ".join(f"{name} {level}" for name, level in (measures.levels or {}).items())
            return [*lines, f"Levels      {levels}", *_noise_lines(measures.noise or {})]
        if (risks := measures.risks) is not None:
            highest = f"prosecutor {percent_at_most(risks.prosecutor_highest)} at most"
            lines.append(f"Risks       {highest}, marketer {percent(risks.marketer)}")
        for name, item in (measures.sensitive or {}).items():
            lines.append(f"Sensitive   {name}: l {item.l}, t {item.t:.3f} ({item.distance})")
        return lines

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        measures = certificate.rows
        if measures.suppressed is None or measures.class_size is None or measures.loss is None:
            return super().headline(certificate, num_rows, num_left_out)
        persons = f", fewest persons {measures.k_reached}" if measures.persons is not None else ""
        smallest = f"smallest {measures.class_size.smallest}{persons}"
        return [
            f"Records   {measures.records} released, {measures.suppressed.count} suppressed, "
            f"{num_left_out} left out by the policy",
            f"Classes   {measures.classes}, {smallest}, loss {measures.loss.total:.4f}",
        ]


class SlotsKind(ClassesKind):
    table_words: ClassVar = {
        "data": "one line for each slot; a slot takes one record of at most its size, or none",
        "classes": "one line for each size of slots, with their number",
    }
    unchecked: ClassVar = (
        ("that the counts are those of the owner's true records",),
        *((words,) for words in NOT_CHECKED[1:3]),
        ("that the noise follows the stated law and is new for every count",),
        (NOT_CHECKED[-1],),
    )

    def recount(self, release: Release) -> Iterator[str]:
        _check_unchanged(release)
        yield _check_rows(release)
        yield _check_classes(release)
        yield _check_domains(release)

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        base = name.removesuffix("_upper")
        fixed = {
            "row": "number of the slot",
            "class_id": "slots of one size, with the same public values",
            "size": "number of slots of this size",
        }
        if base != name and base in release.attributes:
            return f"size of the slot{_in_unit(base, release)}: the record in it has at most this {base}"
        return fixed.get(name) or super().column_words(name, release, table)

    def readme(self, release: Release, columns: str) -> str:
        unit, sure = release.certificate.guarantee.protects, _all_fit(release.certificate)
        sample = (
            f"\nA row is a slot for one {unit}, not a {unit}. There are more slots than needed, so some stay empty.\n"
            f"With probability {sure} or more, whatever the data, every {unit} has a slot of at least its size.\n"
            "Plan the upper ends.\n"
        )
        plan, intervals = fill("rows-plan"), "Only the upper end says something: the lower end is that of the domain."
        return fill("rows", sample=sample, columns=columns, intervals=intervals, snippet="", plan=plan)

    def figures(self, release: Release) -> list[str]:
        slots = cast("SlotMeasures", release.certificate.rows.slots)
        records, groups = release.certificate.rows.records, slots.groups
        lines = [
            f"Slots       {slots.slots} of {release.certificate.rows.classes} sizes, for "
            f"{records} records{'' if slots.records_public else ' expected; how many there are is hidden'}",
            f"Risk        some record has no slot of its size with probability {slots.risk} at most, whatever the data",
        ]
        for item in groups[:MAX_LINES]:
            chains = "" if item.chains == 1 else f" in {item.chains} chains"
            lines.append(
                f"Profile     {item.records} records: {item.intervals} counts{chains}, margin {item.margin} at most"
            )
        return lines

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        return [
            f"Slots     {num_rows} of {certificate.rows.classes} sizes",
            f"Fit       every record has a slot with probability {_all_fit(certificate)} or more, whatever the data",
        ]


def _all_fit(certificate: Certificate) -> str:
    return bounded_text(1 - exact(cast("SlotMeasures", certificate.rows.slots).risk), up=False)


def _is_clustered(release: Release) -> bool:
    """Return whether classes are clusters: intervals, nodes and sets, not levels of hierarchies."""
    return release.certificate.rows.distortion is not None


def _is_set_valued(release: Release, name: str) -> bool:
    return _is_clustered(release) and release.attributes[name].domain_kind not in (Numeric.kind, Tree.kind)


def _class_columns(release: Release) -> dict[str, pa.DataType]:
    """Return the non-public columns in which the records of a class look alike, with their types."""
    multiset, clustered = _statistic(release) == "multiset", _is_clustered(release)
    with_mean = _statistic(release) in ("mean", "multiset") and not clustered
    ends = ("lower", "upper", "mean") if with_mean else ("lower", "upper")
    columns: dict[str, pa.DataType] = {}
    for name in generalised(release):
        if is_number(release, name):
            columns |= {f"{name}_{end}": pa.float64() for end in ends}
        else:
            columns[name] = SET_TYPE if _is_set_valued(release, name) else pa.string()
        if _is_set_valued(release, name) and release.attributes[name].domain_kind == Graph.kind:
            columns[name + DIAMETER_SUFFIX] = pa.float64()
        if _is_set_valued(release, name) and multiset:
            columns[name + COUNTS_SUFFIX] = COUNTS_TYPE
    return columns


def _statistic(release: Release) -> object:
    return release.certificate.mechanism.get("statistic")


def _classes(release: Release) -> pa.Table:
    require(release.classes is not None, "the tables are not those of the certificate")
    return release.classes


def _k_of(release: Release) -> int:
    guarantee = release.certificate.guarantee
    if isinstance(guarantee, KAnonymity):
        return guarantee.k
    k = release.certificate.mechanism.get("k")
    require(type(k) is int and k >= 2, "certificate.json: the mechanism does not state its k")
    return cast("int", k)


def _check_k(release: Release) -> str:
    """Recount k: the smallest group over all public and generalised columns together."""
    k = _k_of(release)
    columns = [*with_role(release, PUBLIC), *_class_columns(release)]
    lines = alike(release, *columns)
    if not len(lines):
        require(not isinstance(release.certificate.guarantee, KAnonymity), "data: no row, so nothing is k-anonymous")
        return f"k = {k} requested, for no rows"
    table = pa.table({**{name: lines.column(name) for name in lines.values}, "\0num": lines.counts})
    groups = table.group_by(columns).aggregate([("\0num", "sum"), ("class_id", "min"), ("class_id", "max")])
    smallest = int(np.min(groups.column("\0num_sum").to_numpy()))
    require(smallest >= k, f"data: the smallest class has {smallest} records, not {k}")
    require(groups.column("class_id_min").equals(groups.column("class_id_max")), "data: class_id splits a class")
    num_classes = len(lines.values["class_id"])
    require(groups.num_rows == num_classes, "data: class_id joins records that do not look alike")
    return f"k = {k} requested, {smallest} reached, counted over {', '.join(columns)}"


def _check_classes(release: Release) -> str:
    lines, classes = alike(release, *_class_columns(release)), comparable(_classes(release))
    class_id = lines.column("class_id").to_numpy()
    ids = classes.column("class_id").to_numpy()
    require(bool(np.array_equal(ids, np.arange(len(ids)))), "classes: class_id is not 0, 1, 2 ...")
    # Before counting: a huge number would need a huge array.
    ends = (int(class_id.min()), int(class_id.max())) if len(class_id) else (0, -1)
    require(ends == (0, len(ids) - 1), "data: a class_id is not in classes")
    sizes = class_sizes(class_id, lines.counts)
    require(bool(np.array_equal(sizes, classes.column("size").to_numpy())), "classes: sizes do not add up")
    for name in _class_columns(release):
        of_class, of_line = classes.column(name).to_numpy(), lines.column(name).to_numpy(zero_copy_only=False)
        same = np.array_equal(of_class[class_id], of_line)
        require(bool(same), f"classes: {name} differs between classes and data")
    return "class sizes, bounds, nodes, sets and means agree between data and classes"


def _check_domains(release: Release) -> str:
    classes = _classes(release)
    for name in with_role(release, PUBLIC, SENSITIVE):
        if release.attributes[name].domain is not None:
            inside = domain_of(release, name).contains(np.asarray(release.data.column(name).unique().to_pylist()))
            require(bool(inside.all()), f"data: a value of {name} leaves the public domain")
    for name in generalised(release):
        if is_number(release, name):
            domain = numeric_domain(release, name)
            lower, upper = (floats(classes, f"{name}_{end}") for end in ("lower", "upper"))
            inside = domain.contains(lower) & domain.contains(upper) & (lower <= upper)
            require(bool(inside.all()), f"classes: an interval of {name} is empty or leaves the public domain")
            if f"{name}_mean" in classes.column_names:
                mean = floats(classes, f"{name}_mean")
                within = (lower <= mean) & (mean <= upper)
                require(bool(within.all()), f"classes: a mean of {name} lies outside its interval")
        elif _is_set_valued(release, name):
            labels, codes, sizes = _set_codes(release, classes, name)
            fits = (sizes >= 1) & (sizes <= classes.column("size").to_numpy())
            require(
                bool(fits.all()), f"classes: a set of {name} is empty or has more values than its class has records"
            )
            new_set = np.repeat(np.arange(len(sizes)), sizes)
            in_order = (np.diff(codes) > 0) | (np.diff(new_set) > 0)
            require(bool(in_order.all()), f"classes: a set of {name} is not in order")
            if name + COUNTS_SUFFIX in classes.column_names:
                column = classes.column(name + COUNTS_SUFFIX).combine_chunks()
                counts = column.flatten().to_numpy(zero_copy_only=False)
                fits = np.array_equal(pc.list_value_length(column).to_numpy(zero_copy_only=False), sizes)
                fits = fits and bool((counts >= 1).all())
                fits = fits and np.array_equal(
                    np.bincount(new_set, weights=counts, minlength=len(sizes)), classes.column("size").to_numpy()
                )
                require(
                    fits,
                    f"classes: counts of {name} do not add up to the records of their class",
                )
            if name + DIAMETER_SUFFIX in classes.column_names:
                equal = np.array_equal(set_widths(labels, codes, sizes), floats(classes, name + DIAMETER_SUFFIX))
                require(equal, f"classes: {name}_diameter is not the longest path inside its set")
        elif _is_clustered(release):
            tree = cast("Tree", domain_of(release, name))
            are_nodes = set(classes.column(name).to_pylist()) <= tree.node_sizes.keys()
            require(are_nodes, f"classes: {name} has a label that is not a node of the public tree")
        else:
            are_nodes = set(classes.column(name).to_pylist()) <= _nodes(release, name).node_widths.keys()
            require(are_nodes, f"classes: {name} has a label that is not a node of the public hierarchy")
    return "every interval, node and set lies in the public domain"


def _set_codes(release: Release, classes: pa.Table, name: str) -> tuple[CodedDomain, IntArray, IntArray]:
    """Return the domain of a column of sets, the codes of all labels set by set, and the size of each set."""
    domain = cast("CodedDomain", domain_of(release, name))
    column = classes.column(name).combine_chunks()
    labels = column.flatten().dictionary_encode()
    distinct = np.asarray(labels.dictionary.to_pylist(), dtype=object)
    require(bool(domain.contains(distinct).all()), f"classes: a set of {name} leaves the public domain")
    codes = domain.codes(distinct)[labels.indices.to_numpy(zero_copy_only=False)]
    return domain, codes, pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def _nodes(release: Release, name: str) -> NodeHierarchy:
    return cast("NodeHierarchy", hierarchy_of(domain_of(release, name)))


def _check_members(release: Release, members: pa.Table) -> str:
    classes = _classes(release)
    class_id, sizes = members.column("class_id").to_numpy(), classes.column("size").to_numpy()
    require(bool(class_id.min() >= 0 and class_id.max() < len(sizes)), "members: a class_id is not in classes")
    require(bool(np.array_equal(np.bincount(class_id, minlength=len(sizes)), sizes)), "members: sizes do not add up")
    columns = [sort_key(members.column(name).combine_chunks()) for name in generalised(release)]
    in_order = np.lexsort((*reversed(columns), class_id)) == np.arange(len(class_id))
    require(bool(in_order.all()), "members: not sorted, so their order may link them to rows")
    starts = np.cumsum(sizes) - sizes
    for name in (name for name in generalised(release) if is_number(release, name)):
        values = floats(members, name)
        least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
        fits = (lower <= least) & (most <= upper)
        require(bool(fits.all()), f"members: values of {name} do not fit the bounds of their class")
        means = np.add.reduceat(values, starts) / sizes
        slack = TOLERANCE * np.maximum(np.abs(lower), np.abs(upper))
        close = np.abs(means - floats(classes, f"{name}_mean")) <= slack
        require(bool(close.all()), f"members: means of {name} differ")
    return "multisets fit the sizes, bounds and means of their classes"


def _check_levels(release: Release) -> str:
    levels, classes = release.certificate.rows.levels or {}, _classes(release)
    stated = levels.keys() == set(generalised(release))
    require(stated, "certificate.json: does not state one level for each generalised attribute")
    for name, level in levels.items():
        hierarchy = hierarchy_of(domain_of(release, name))
        require(0 <= level < hierarchy.num_levels, f"certificate.json: the hierarchy of {name} has no such level")
        if isinstance(hierarchy, IntervalHierarchy):
            printed = [floats(classes, f"{name}_{end}") for end in ("lower", "upper")]
            at_level = all(map(np.array_equal, printed, hierarchy.bounds(printed[0], level)))
        else:
            printed = [classes.column(name).to_numpy()]
            at_level = set(printed[0]) <= set(hierarchy.labels(level))
        require(at_level, f"classes: {name} is not at the stated level")
        if release.members is None:
            continue
        class_id, values = release.members.column("class_id").to_numpy(), release.members.column(name).to_numpy()
        require(bool(hierarchy.domain.contains(values).all()), f"members: a value of {name} leaves the public domain")
        if isinstance(hierarchy, IntervalHierarchy):
            of_members: tuple[NDArray[Any], ...] = hierarchy.bounds(values, level)
        else:
            of_members = (np.asarray(hierarchy.labels(level), dtype=object)[hierarchy.domain.codes(values)],)
        fits = all(np.array_equal(of_class[class_id], each) for of_class, each in zip(printed, of_members, strict=True))
        require(fits, f"members: values of {name} are not below the node or interval of their class")
    return "every attribute is at one level of its public hierarchy"


# What depends on how classes were formed


def check_figures(release: Release, rules: ClassRelease) -> str:
    classes = _classes(release)
    _check_bounds(release, classes, rules.class_bounds)
    stated = release.certificate.rows.plain()
    require("loss" in stated, "certificate.json: the loss is wrong")
    loss = stated.pop("loss")
    if rules.class_bounds == "level":  # the levels themselves were checked with the hierarchies
        has_levels = stated.pop("levels", None) is not None
        require(has_levels, "certificate.json: does not state one level for each generalised attribute")
    sizes = classes.column("size").to_numpy()
    if isinstance(release.certificate.guarantee, KAnonymity):
        suppressed, words = release.certificate.rows.suppressed, "k, class sizes, risks, l, t and loss"
        require(
            suppressed is not None and suppressed.count >= 0,
            "certificate.json: the number of suppressed records is wrong",
        )
        num_suppressed = release.certificate.rows.num_suppressed
        limit = rules.most_suppressed
        fits = limit is None or num_suppressed <= limit * (release.data.num_rows + num_suppressed)
        require(fits, "certificate.json: more records are suppressed than the mechanism allows")
        fewest = None
        if (persons := release.certificate.rows.persons) is not None:
            fewest = persons.smallest
            fits = _k_of(release) <= fewest <= int(sizes.min())
            require(fits, "certificate.json: the number of persons does not fit k and the class sizes")
        figures: dict[str, object] = size_measures(sizes, _k_of(release), num_suppressed, fewest).plain()
        sensitive = dict[str, object]()
        for name in with_role(release, SENSITIVE):
            lines = alike(release, name)
            values = ranked(lines.column(name), release.attributes[name].plain())
            class_id = lines.column("class_id").to_numpy()
            measured = sensitive_measures(class_id, values, lines.counts, ordered=rules.sensitive_order)
            sensitive[name] = measured.plain()
        figures["sensitive"] = sensitive
        own = rules.own_figures(release, num_suppressed)
        figures |= own
        words = "k, class sizes, risks, l, t, importance and distortion" if own else words
    else:  # the number of suppressed records would reveal something about records that are not released
        num_suppressed, words = 0, "k, class sizes and loss"
        figures = RowMeasures(**size_figures(sizes, _k_of(release))).plain()
        stated.pop("noise" if release.noisy else "", None)  # checked with the sample
    wrong = [name for name in figures.keys() | stated.keys() if not _agree(figures.get(name, ""), stated.get(name, ""))]
    require(not wrong, f"certificate.json: wrong figures: {', '.join(sorted(wrong))}")
    if len(sizes):
        _check_loss(release, classes, num_suppressed, rules)
    require(len(sizes) > 0 or loss is None, "certificate.json: states a loss without rows")
    return f"{words} of the certificate were recomputed"


def _check_bounds(release: Release, classes: pa.Table, bounds: str) -> None:
    """Check that bounds are on the public grid if they should be, and fit the members if there are any."""
    for name in (name for name in generalised(release) if is_number(release, name)):
        domain = numeric_domain(release, name)
        lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
        if bounds == "grid":
            on_grid = domain.on_grid(lower) & domain.on_grid(upper)
            require(bool(on_grid.all()), f"classes: a bound of {name} is not on the public grid")
        if release.members is None or bounds == "level":
            continue
        sizes = classes.column("size").to_numpy()
        values, starts = floats(release.members, name), np.cumsum(sizes) - sizes
        least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        if bounds == "grid":
            least, most = domain.grid_values(domain.steps_below(least)), domain.grid_values(domain.steps_above(most))
        fits = (least == lower) & (most == upper)
        require(bool(fits.all()), f"members: values of {name} do not fit the bounds of their class")


def sensitive_column(release: Release, name: str) -> pa.Array:
    return ranked(release.data.column(name).combine_chunks(), release.attributes[name].plain())


def _agree(counted: object, stated: object) -> bool:
    """Return whether figures are the same, fractions up to rounding."""
    if isinstance(counted, dict) and isinstance(stated, dict):
        return counted.keys() == stated.keys() and all(_agree(value, stated[name]) for name, value in counted.items())
    if isinstance(counted, float) and isinstance(stated, float):
        return math.isclose(counted, stated, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(counted) is type(stated) and counted == stated


def _check_loss(release: Release, classes: pa.Table, num_suppressed: int, rules: ClassRelease) -> None:
    alpha, weights, stated = float(rules.price_of_suppression), rules.weights(release), release.certificate.rows.loss
    sizes = classes.column("size").to_numpy()
    num_records = int(sizes.sum()) + num_suppressed
    sums, slack = {}, 0.0
    for name in generalised(release):
        widths, rounding = class_widths(release, classes, name)
        sums[name] = float((sizes * widths).sum()) + alpha * num_suppressed
        slack += weights[name] * float((sizes * rounding).sum())
    total = sum(weights[name] * value for name, value in sums.items())
    wrong = "certificate.json: the loss is wrong"
    require(stated is not None and stated.attributes.keys() == sums.keys() and stated.metric == rules.metric, wrong)
    if stated is not None:
        pairs = [(total, stated.sum), (total / sum(weights.values()) / num_records, stated.total)]
        pairs += [(value / num_records, stated.attributes[name]) for name, value in sums.items()]
        near = (math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE + slack) for one, two in pairs)
        require(all(near), wrong)


def class_widths(release: Release, classes: pa.Table, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the width of each class as a share of the domain, and how far rounding may have moved it."""
    if is_number(release, name):
        lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
        diameter = numeric_domain(release, name).diameter
        # The loss was added up from decimals; a bound is only the nearest double of one.
        return (upper - lower) / diameter, (np.spacing(np.abs(lower)) + np.spacing(np.abs(upper))) / diameter
    if _is_set_valued(release, name):
        domain, codes, sizes = _set_codes(release, classes, name)
        widths = set_widths(domain, codes, sizes) / (domain.diameter or 1.0)
    elif _is_clustered(release):
        tree = cast("Tree", domain_of(release, name))
        sizes_of = tree.node_sizes
        leaves = np.array([sizes_of[label] for label in classes.column(name).to_pylist()])
        widths = (leaves - 1) / (tree.diameter or 1.0)
    else:
        hierarchy = _nodes(release, name)
        labels = classes.column(name).to_pylist()
        widths = np.asarray([hierarchy.node_widths[label] / hierarchy.whole for label in labels])
    return np.asarray(widths), np.zeros(len(classes))
