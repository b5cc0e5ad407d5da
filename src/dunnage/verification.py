# SPDX-License-Identifier: Apache-2.0
"""verify: check a release folder from outside, with nothing but the folder.

Digests come before parsing. Then what can be counted is counted again: k over public and generalised columns, class
sizes, bounds, sums, domains, and every figure the certificate prints. What cannot be seen from outside is said.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dunnage.certificate import Certificate, composition_rule, load_public_key, meaning
from dunnage.domains import (
    FloatArray,
    Hierarchy,
    IntArray,
    IntervalHierarchy,
    NodeHierarchy,
    Numeric,
    domain_from,
    hierarchy_of,
)
from dunnage.errors import CheckFailed, ReleaseError
from dunnage.exact import exact
from dunnage.guarantees import Basis, Guarantee, KAnonymity, Neighbours, Promise, guarantee_from
from dunnage.measures import LOSS_METRIC, class_sizes, sensitive_measures, size_measures, sort_key
from dunnage.release import (
    CERTIFICATE_FILE,
    DATAPACKAGE_FILE,
    RELEASE_FILES,
    Release,
    escape_text,
    file_digest,
    is_plain_file,
    is_text,
    printable,
    read_certificate,
    read_tables,
)

_TOLERANCE = 1e-9
NOT_CHECKED = (
    "that the rows are the owner's true records, and all of them",
    "that domains and hierarchies were chosen without looking at the data",
    "that what is said to be in clear and assumed is complete",
    "that the order of rows was drawn at random",
    "that the ledger holds the spend, and what else was released about the same records",
)


@dataclass
class Verification:
    """What was checked, what failed, and what cannot be checked from outside.

    Attributes
    ----------
    checks
        What was checked and held.
    problems
        What did not hold; empty means the release is in order.
    basis
        What the certificate states: proved, claimed or void; empty if it cannot be read.
    not_checked
        What nobody can see from the folder alone.
    """

    folder: str
    basis: str = ""
    checks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_checked: tuple[str, ...] = NOT_CHECKED

    @property
    def ok(self) -> bool:
        """Whether every check held."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain data."""
        return {
            "release": self.folder,
            "ok": self.ok,
            "basis": self.basis,
            "checks": self.checks,
            "problems": self.problems,
            "not_checked": list(self.not_checked),
        }

    def summary(self) -> str:
        """Print the result for a person."""
        void = ", but void: nothing is promised" if self.basis == Basis.VOID else ""
        lines = [f"In order{void}: {self.folder}" if self.ok else f"NOT in order: {self.folder}"]
        lines += [f"  failed  {problem}" for problem in self.problems]
        lines += [f"  {'note' if _is_caveat(check) else 'ok':<6}  {check}" for check in self.checks]
        lines += ["Cannot be checked from outside:", *(f"  -       {item}" for item in self.not_checked)]
        return "\n".join(lines)


def _is_caveat(check: str) -> bool:
    """Return whether a check held only as far as an unsigned folder can."""
    return check.startswith(("not signed", "signed, but"))


def verify(folder: str | os.PathLike[str], *, signed_by: str | os.PathLike[str] | None = None) -> Verification:
    """Check a release folder.

    Parameters
    ----------
    folder
        The folder that was handed over.
    signed_by
        Public key (PEM file) the certificate must be signed with.

    Returns
    -------
    Verification
        ``ok`` tells whether everything held.

    Raises
    ------
    ReleaseError
        If there is no release at that place at all.
    """
    path = Path(folder)
    if not path.is_dir():
        raise ReleaseError(f"{path} is not a folder, so it is not a release. Give the folder that publish wrote.")
    trusted = load_public_key(signed_by) if signed_by is not None else None
    result = Verification(str(path))
    try:
        certificate = read_certificate(path)
        result.basis = str(certificate.basis)
        result.checks.append("the certificate is readable, in canonical form, and fits its own digest")
        result.checks.append(certificate.check_signature(trusted))
        _check_digests(path, certificate)
        result.checks.append(f"{len(certificate.files)} files fit their digests, and there are no others")
        release = Release(certificate=certificate, **read_tables(path, certificate))
        for check in _CHECKS:
            result.checks.append(check(release, path))
    except (CheckFailed, ReleaseError) as failure:
        result.problems.append(str(failure))
    except OSError as failure:
        result.problems.append(f"a file cannot be read: {failure.strerror or type(failure).__name__}")
    except MemoryError:
        raise
    except Exception as failure:
        # Whatever goes wrong from here on, whoever made the folder made it malformed: never pass, never crash.
        result.problems.append(f"the contents do not have the form of a release ({type(failure).__name__})")
    return result


def _check_digests(folder: Path, certificate: Certificate) -> None:
    listed = certificate.files
    present = {path.name for path in folder.iterdir()} - {CERTIFICATE_FILE}
    problems = [f"{name}: listed in the certificate but missing" for name in set(listed) - present]
    problems += [f"{name}: not listed in the certificate" for name in present - set(listed)]
    problems += [f"{name}: no file of a release" for name in (present & set(listed)) - RELEASE_FILES]
    for name in present & set(listed) & RELEASE_FILES:
        if not is_plain_file(folder, name) or file_digest(folder / name) != listed[name]:
            problems.append(f"{name}: does not fit its digest, so it was changed or damaged")
    if problems:
        raise CheckFailed("; ".join(printable(problem) for problem in sorted(problems)))


def _require(condition: bool, failure: str) -> None:
    if not condition:
        raise CheckFailed(failure)


def _check_statement(release: Release, folder: Path) -> str:
    """Check that words and odds of the certificate follow from its guarantee and basis."""
    body, basis = release.certificate.body, release.certificate.basis
    holds: Guarantee | None = guarantee_from(body["holds"]) if "holds" in body else None
    promise = Promise(
        guarantee=release.certificate.guarantee,
        basis=basis,
        mechanism=body["mechanism"],
        holds=holds,
        why=body.get("why", ""),
    )
    wrong = "gives a reason why it is not" if promise.why else "does not say why"
    _require((basis is Basis.PROVED) != bool(promise.why), f"certificate.json: {basis}, but {wrong}")
    _require(holds is None or basis is Basis.CLAIMED, f"certificate.json: {basis}, but states what holds instead")
    _require(body["meaning"] == meaning(promise), "certificate.json: the odds do not follow from the guarantee")
    _check_composition(promise, body["composition"])
    k = getattr(promise.guarantee, "k", None)
    _require(body["mechanism"].get("k", k) == k, "certificate.json: mechanism and guarantee have another k")
    _require(body["time"] == body["spend"]["at"], "certificate.json: its time is not that of the spend")
    return "the odds and composition rule follow from the guarantee"


def _check_composition(promise: Promise, stated: Mapping[str, Any]) -> None:
    rule = composition_rule(promise.guarantee)
    _require(stated["rule"] == rule, "certificate.json: the composition rule does not fit the guarantee")
    bounded = promise.true_loss(Neighbours(stated["neighbours"])).bounded
    none = all(stated[name] == "none" for name in ("total", "total_per_period"))
    _require(bounded or none, "certificate.json: states a total, which does not exist after this release")


def _with_role(release: Release, *roles: str) -> list[str]:
    return [name for role in roles for name, item in release.attributes.items() if item["role"] == role]


def _generalised(release: Release) -> list[str]:
    return _with_role(release, "quasi-identifier")


def _class_columns(release: Release) -> dict[str, pa.DataType]:
    """Return the columns in which the records of a class look alike, besides public ones, with their types."""
    told = release.certificate.body["mechanism"].get("statistic")
    ends = ("lower", "upper", "mean") if told in ("mean", "multiset") else ("lower", "upper")
    columns: dict[str, pa.DataType] = {}
    for name in _generalised(release):
        columns |= {f"{name}_{end}": pa.float64() for end in ends} if _is_number(release, name) else {name: pa.string()}
    return columns


def _is_number(release: Release, name: str) -> bool:
    return bool(release.attributes[name]["domain"]["kind"] == Numeric.kind)


def _expected_tables(release: Release) -> dict[str, dict[str, pa.DataType | None]]:
    """Return the tables and columns that the certificate speaks of; None is any type."""
    whole = pa.int64()
    as_is = dict.fromkeys(_with_role(release, "public", "sensitive"))
    classes = _class_columns(release)
    tables: dict[str, dict[str, pa.DataType | None]] = {
        "data": {"row": whole, "class_id": whole, **as_is, **classes},
        "classes": {"class_id": whole, "size": whole, **classes},
    }
    if release.certificate.body["mechanism"].get("statistic") == "multiset":
        values = {name: pa.float64() if _is_number(release, name) else pa.string() for name in _generalised(release)}
        tables["members"] = {"class_id": whole, **values}
    return tables


def _check_columns(release: Release, folder: Path) -> str:
    """Check that no table or column is there that the certificate does not speak of, and none missing."""
    _require(len(release.attributes) == len(release.certificate.body["attributes"]), "an attribute is listed twice")
    if not isinstance(release.certificate.guarantee, KAnonymity):
        _require(release.classes is None and release.members is None, "classes in a release that is not k-anonymous")
        return "no classes"
    expected = _expected_tables(release)
    _require(list(release.tables) == list(expected), "the tables are not those that the certificate speaks of")
    for name, columns in expected.items():
        found = release.tables[name]
        fits = found.column_names == list(columns) and all(
            kind in (None, found.schema.field(column).type) for column, kind in columns.items()
        )
        _require(fits, f"{name}: the columns are not those that the certificate speaks of")
        missing = [column for column in columns if found.column(column).null_count]
        _require(not missing, f"{name}: missing values in {', '.join(missing)}")
    return "tables and columns are those that the certificate speaks of, without missing values"


def _check_csv(release: Release, folder: Path) -> str:
    """Check that each CSV file holds the same table as its Parquet file."""
    for name, table in release.tables.items():
        # Arrow writes the widest decimals to CSV but does not read them: they are compared as text.
        wide = [item.name for item in table.schema if pa.types.is_decimal256(item.type)]
        kinds = {item.name: pa.string() if item.name in wide else item.type for item in table.schema}
        text = pacsv.read_csv(
            str(folder / f"{name}.csv"),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
        )
        columns = zip(table.column_names, table.itercolumns(), strict=True)
        expected = [escape_text(c) if is_text(c.type) else c.cast(kinds[n]) for n, c in columns]
        same = text.column_names == table.column_names and all(
            found.equals(wanted) for found, wanted in zip(text.itercolumns(), expected, strict=True)
        )
        _require(same, f"{name}.csv does not hold the same table as {name}.parquet")
    return "CSV and Parquet files hold the same tables"


def _check_datapackage(release: Release, folder: Path) -> str:
    """Check that the description for programs names these files and columns."""
    described = {
        item["path"]: (item["hash"], [column["name"] for column in item["schema"]["fields"]])
        for item in json.loads((folder / DATAPACKAGE_FILE).read_bytes())["resources"]
    }
    files = release.certificate.files
    expected = {
        f"{name}.csv": (f"sha256:{files[f'{name}.csv']}", table.column_names) for name, table in release.tables.items()
    }
    _require(described == expected, f"{DATAPACKAGE_FILE} does not describe the tables")
    return "datapackage.json describes the tables"


def _check_rows(release: Release, folder: Path) -> str:
    num_rows = release.data.num_rows
    if "row" in release.data.column_names:
        rows = release.data.column("row").to_numpy()
        _require(bool(np.array_equal(rows, np.arange(num_rows))), "data: column row is not 0, 1, 2 ...")
    return f"{num_rows} rows"


def _check_k(release: Release, folder: Path) -> str:
    """Count k again: smallest group over all public and generalised columns together."""
    guarantee = release.certificate.guarantee
    if not isinstance(guarantee, KAnonymity):
        return "no k to count"
    columns = [*_with_role(release, "public"), *_class_columns(release)]
    groups = release.data.group_by(columns).aggregate([([], "count_all"), ("class_id", "min"), ("class_id", "max")])
    smallest = int(np.min(groups.column("count_all").to_numpy()))
    _require(smallest >= guarantee.k, f"data: the smallest class has {smallest} records, not {guarantee.k}")
    _require(groups.column("class_id_min").equals(groups.column("class_id_max")), "data: class_id splits a class")
    num_classes = len(np.unique(release.data.column("class_id").to_numpy()))
    _require(groups.num_rows == num_classes, "data: class_id joins records that do not look alike")
    return f"k = {guarantee.k} asked, {smallest} reached, counted over {', '.join(columns)}"


def _check_classes(release: Release, folder: Path) -> str:
    """Check that sizes, bounds and means are the same wherever they are printed."""
    if release.classes is None:
        return "no classes"
    class_id = release.data.column("class_id").to_numpy()
    ids = release.classes.column("class_id").to_numpy()
    _require(bool(np.array_equal(ids, np.arange(len(ids)))), "classes: class_id is not 0, 1, 2 ...")
    # Looked at before counting: a huge number would be a huge array.
    _require(bool(class_id.min() == 0 and class_id.max() == len(ids) - 1), "data: a class_id is not in classes")
    sizes = class_sizes(class_id)
    _require(bool(np.array_equal(sizes, release.classes.column("size").to_numpy())), "classes: sizes do not add up")
    for name in _class_columns(release):
        same = np.array_equal(release.classes.column(name).to_numpy()[class_id], release.data.column(name).to_numpy())
        _require(bool(same), f"classes: {name} differs between classes and data")
    return "class sizes, bounds, nodes and means agree between data and classes"


def _domain(release: Release, name: str) -> Numeric:
    return cast("Numeric", domain_from(release.attributes[name]["domain"]))


def _hierarchy(release: Release, name: str) -> Hierarchy:
    return hierarchy_of(domain_from(release.attributes[name]["domain"]))


def _nodes(release: Release, name: str) -> NodeHierarchy:
    return cast("NodeHierarchy", _hierarchy(release, name))


def _floats(table: pa.Table, name: str) -> FloatArray:
    values: FloatArray = table.column(name).to_numpy()
    return values


def _check_domains(release: Release, folder: Path) -> str:
    """Check that intervals lie in the public domain, on its grid if they should, and nodes in the public hierarchy."""
    if release.classes is None:
        return "no intervals"
    for name in _generalised(release):
        if _is_number(release, name):
            _check_intervals(release, release.classes, name)
        else:
            known = set(release.classes.column(name).to_pylist()) <= _nodes(release, name).node_widths.keys()
            _require(known, f"classes: {name} has a label that is no node of the public hierarchy")
    return "every interval and node lies in the public domain"


def _check_intervals(release: Release, classes: pa.Table, name: str) -> None:
    domain = _domain(release, name)
    lower, upper = (_floats(classes, f"{name}_{end}") for end in ("lower", "upper"))
    inside = domain.contains(lower) & domain.contains(upper) & (lower <= upper)
    _require(bool(inside.all()), f"classes: an interval of {name} is empty or leaves the public domain")
    if release.certificate.body["mechanism"].get("bounds") == "grid":
        on_grid = domain.on_grid(lower) & domain.on_grid(upper)
        _require(bool(on_grid.all()), f"classes: a bound of {name} is not on the public grid")
    if f"{name}_mean" in classes.column_names:
        mean = _floats(classes, f"{name}_mean")
        within = (lower <= mean) & (mean <= upper)
        _require(bool(within.all()), f"classes: a mean of {name} lies outside its interval")


def _check_levels(release: Release, folder: Path) -> str:
    """Check that each attribute is generalised to the one level of its public hierarchy that is stated."""
    levels = release.certificate.body["measures"].get("levels")
    full_domain = release.certificate.body["mechanism"].get("name") == "full-domain"
    nodes = [name for name in _generalised(release) if not _is_number(release, name)]
    if release.classes is None or (levels is None and not full_domain and not nodes):
        return "no levels"
    stated = isinstance(levels, dict) and levels.keys() == set(_generalised(release))
    _require(stated, "certificate.json: does not state one level for each generalised attribute")
    for name, level in cast("dict[str, Any]", levels).items():
        hierarchy = _hierarchy(release, name)
        known = type(level) is int and 0 <= level < hierarchy.num_levels
        _require(known, f"certificate.json: the hierarchy of {name} has no such level")
        _check_level(release, release.classes, name, level, hierarchy)
    return "every attribute is at one level of its public hierarchy"


def _check_level(release: Release, classes: pa.Table, name: str, level: int, hierarchy: Hierarchy) -> None:
    if isinstance(hierarchy, IntervalHierarchy):
        told = [_floats(classes, f"{name}_{end}") for end in ("lower", "upper")]
        at_level = all(map(np.array_equal, told, hierarchy.bounds(told[0], level)))
    else:
        told = [classes.column(name).to_numpy()]
        at_level = set(told[0]) <= set(hierarchy.labels(level))
    _require(at_level, f"classes: {name} is not at the level that is stated")
    if release.members is not None:
        class_id = release.members.column("class_id").to_numpy()
        found = _generalisations(release.members.column(name).to_numpy(), level, hierarchy, name)
        fits = all(
            np.array_equal(of_class[class_id], of_member) for of_class, of_member in zip(told, found, strict=True)
        )
        _require(fits, f"members: values of {name} are not below the node or interval of their class")


def _generalisations(values: Any, level: int, hierarchy: Hierarchy, name: str) -> tuple[Any, ...]:
    """Return what a level makes of values: lower and upper ends, or labels."""
    inside = hierarchy.domain.contains(values)
    _require(bool(inside.all()), f"members: a value of {name} leaves the public domain")
    if isinstance(hierarchy, IntervalHierarchy):
        return hierarchy.bounds(values, level)
    return (np.asarray(hierarchy.labels(level), dtype=object)[hierarchy.domain.codes(values)],)


def _check_members(release: Release, folder: Path) -> str:
    """Check that multisets are sorted and have the size, bounds and mean of their class."""
    if release.members is None or release.classes is None:
        return "no multisets"
    class_id = release.members.column("class_id").to_numpy()
    sizes = release.classes.column("size").to_numpy()
    _require(bool(class_id.min() >= 0 and class_id.max() < len(sizes)), "members: a class_id is not in classes")
    _require(bool(np.array_equal(np.bincount(class_id, minlength=len(sizes)), sizes)), "members: sizes do not add up")
    columns = [sort_key(release.members.column(name).combine_chunks()) for name in _generalised(release)]
    in_order = np.lexsort((*reversed(columns), class_id)) == np.arange(len(class_id))
    _require(bool(in_order.all()), "members: not sorted, so their order may tell whose they are")
    starts = np.cumsum(sizes) - sizes
    for name in _generalised(release):
        if _is_number(release, name):
            _check_member_values(release, release.classes, name, starts)
    return "multisets fit the sizes, bounds and means of their classes"


def _check_member_values(release: Release, classes: pa.Table, name: str, starts: IntArray) -> None:
    values = _floats(cast("pa.Table", release.members), name)
    least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    lower, upper = _floats(classes, f"{name}_lower"), _floats(classes, f"{name}_upper")
    fits = (lower <= least) & (most <= upper)
    bounds = release.certificate.body["mechanism"].get("bounds")
    if bounds == "grid":
        domain = _domain(release, name)
        least, most = domain.grid_values(domain.steps_below(least)), domain.grid_values(domain.steps_above(most))
    if bounds in ("class", "grid"):
        fits &= (least == lower) & (most == upper)
    _require(bool(fits.all()), f"members: values of {name} do not fit the bounds of their class")
    means = np.add.reduceat(values, starts) / classes.column("size").to_numpy()
    slack = _TOLERANCE * np.maximum(np.abs(lower), np.abs(upper))
    close = np.abs(means - _floats(classes, f"{name}_mean")) <= slack
    _require(bool(close.all()), f"members: means of {name} differ")


def _check_measures(release: Release, folder: Path) -> str:
    """Check that every figure of the certificate comes out again from the tables."""
    guarantee = release.certificate.guarantee
    if not isinstance(guarantee, KAnonymity) or release.classes is None:
        return "no figures to recompute"
    stated = dict(release.certificate.body["measures"])
    suppressed = stated["suppressed"]["count"]
    countable = type(suppressed) is int and suppressed >= 0
    _require(countable, "certificate.json: the number of suppressed records is no number")
    _check_limit(release, suppressed)
    loss = stated.pop("loss")
    stated.pop("levels", None)  # looked at with the hierarchies
    class_id = release.data.column("class_id").to_numpy()
    sizes = release.classes.column("size").to_numpy()
    found = size_measures(sizes, guarantee.k, suppressed)
    found["sensitive"] = {
        name: sensitive_measures(class_id, release.data.column(name).combine_chunks())
        for name in _with_role(release, "sensitive")
    }
    wrong = [name for name in found.keys() | stated.keys() if not _agree(found.get(name), stated.get(name))]
    _require(not wrong, f"certificate.json: wrong figures: {', '.join(sorted(wrong))}")
    _check_loss(release, release.classes, suppressed, loss)
    return "k, class sizes, risks, l, t and loss of the certificate come out again"


def _agree(found: Any, stated: Any) -> bool:
    """Return whether figures are the same, up to rounding where they are fractions."""
    if isinstance(found, dict) and isinstance(stated, dict):
        return found.keys() == stated.keys() and all(_agree(value, stated[name]) for name, value in found.items())
    if isinstance(found, float) and isinstance(stated, float):
        return math.isclose(found, stated, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(found) is type(stated) and found == stated


def _check_limit(release: Release, suppressed: int) -> None:
    most = release.certificate.body["mechanism"].get("max_suppressed")
    if most is not None:
        fits = suppressed <= exact(most, what="max_suppressed") * (release.data.num_rows + suppressed)
        _require(fits, "certificate.json: more records are suppressed than the mechanism's limit")


def _check_loss(release: Release, classes: pa.Table, suppressed: int, stated: Mapping[str, Any]) -> None:
    alpha = float(exact(release.certificate.body["mechanism"].get("alpha", 1), what="alpha"))
    weights = _importance(release)
    sizes = classes.column("size").to_numpy()
    num_records = int(sizes.sum()) + suppressed
    sums, slack = {}, 0.0
    for name in _generalised(release):
        widths, rounding = _widths(release, classes, name)
        sums[name] = float((sizes * widths).sum()) + alpha * suppressed
        slack += weights[name] * float((sizes * rounding).sum())
    total = sum(weights[name] * value for name, value in sums.items())
    pairs = [(total, stated["sum"]), (total / sum(weights.values()) / num_records, stated["total"])]
    pairs += [(value / num_records, stated["attributes"].get(name, math.nan)) for name, value in sums.items()]
    close = all(math.isclose(found, said, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE + slack) for found, said in pairs)
    same = stated["attributes"].keys() == sums.keys() and stated["metric"] == LOSS_METRIC
    _require(close and same, "certificate.json: the loss is wrong")


def _importance(release: Release) -> dict[str, float]:
    """Return what the loss of each generalised attribute counts."""
    given = release.certificate.body["mechanism"].get("importance", {})
    weights = {name: float(exact(given.get(name, 1), what="importance")) for name in _generalised(release)}
    sensible = given.keys() <= weights.keys() and all(weight > 0 for weight in weights.values())
    _require(sensible, "certificate.json: the importance of attributes makes no sense")
    return weights


def _widths(release: Release, classes: pa.Table, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the width of each class as a share of the domain, and how far rounding may have moved it."""
    if not _is_number(release, name):
        hierarchy = _nodes(release, name)
        widths = [hierarchy.node_widths[label] / hierarchy.whole for label in classes.column(name).to_pylist()]
        return np.asarray(widths), np.zeros(len(widths))
    lower, upper = _floats(classes, f"{name}_lower"), _floats(classes, f"{name}_upper")
    diameter = _domain(release, name).diameter
    # The loss was added up from decimals, of which a bound is only the nearest double.
    return (upper - lower) / diameter, (np.spacing(np.abs(lower)) + np.spacing(np.abs(upper))) / diameter


_CHECKS: tuple[Callable[[Release, Path], str], ...] = (
    _check_statement,
    _check_columns,
    _check_csv,
    _check_datapackage,
    _check_rows,
    _check_k,
    _check_classes,
    _check_domains,
    _check_members,
    _check_levels,
    _check_measures,
)
