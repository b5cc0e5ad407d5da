# SPDX-License-Identifier: Apache-2.0
"""verify: check a release folder from outside, with nothing but the folder.

Digests come before parsing. Then what can be counted is counted again: k over public and generalised columns, class
sizes, bounds, sums, domains, and every figure the certificate prints. Intervals around noisy values must follow from
the laws of the noise and these from epsilon; epsilon and delta of a sample are worked out again. Counts must be of
types in the public domain, and their noise must add up to epsilon. Estimates must be of what the task reports, and what
vehicles give away must follow from it. What cannot be seen from outside is said.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dunnage._version import __version__
from dunnage.arrays import FloatArray, IntArray
from dunnage.certificate import FIELDS, Certificate, composition_rule, load_public_key, meaning
from dunnage.domains import Graph, Hierarchy, IntervalHierarchy, NodeHierarchy, domain_from, hierarchy_of
from dunnage.errors import CheckFailed, ParameterError, ReleaseError
from dunnage.exact import exact
from dunnage.guarantees import (
    PROJECT,
    Assumption,
    Basis,
    Guarantee,
    KAnonymity,
    Loss,
    Neighbours,
    Promise,
    SampledDP,
    guarantee_from,
    proof_notes,
)
from dunnage.measures import (
    DISTORTION_METRIC,
    LEAST_K,
    LOSS_METRIC,
    class_sizes,
    order_asked,
    sensitive_measures,
    size_measures,
    sort_key,
)
from dunnage.mechanisms import MECHANISMS, mechanism_from
from dunnage.release import (
    CERTIFICATE_FILE,
    COUNTS,
    ESTIMATES,
    RELEASE_FILES,
    ROWS,
    SET_TYPE,
    Release,
    as_text,
    file_digest,
    is_plain_file,
    is_set,
    is_text,
    printable,
    read_certificate,
    read_tables,
)
from dunnage.verification.clusters import check_asked, check_labels, cluster_figures, cluster_widths, fewest_persons
from dunnage.verification.counts import check_cells, check_count_columns, check_count_loss, counts_not_checked
from dunnage.verification.estimates import (
    check_estimate_columns,
    check_estimate_lines,
    check_estimate_loss,
    estimates_not_checked,
)
from dunnage.verification.noise import check_noise, check_sample
from dunnage.verification.reading import (
    comparable,
    floats,
    generalised,
    has_classes,
    is_clustered,
    is_number,
    is_set_valued,
    k_of,
    kind_of,
    num_missing,
    numeric_domain,
    require,
    same,
    sensitive_column,
    with_role,
)

_TOLERANCE = 1e-9
NOT_CHECKED = (
    "that the rows are the owner's true records, and all of them",
    "that domains and hierarchies were chosen without looking at the data",
    "that what is said to be in clear and assumed is complete",
    "that the order of rows was drawn at random",
    "that the ledger holds the spend, and what else was released about the same records",
)
PERSONS_NOT_CHECKED = (
    "that each class holds records of as many persons as is stated: only the owner's key names them",
)
KEPT_NOT_CHECKED = ("that statistics of the true records changed as little as was asked for",)
NOISE_NOT_CHECKED = ("that the noise was drawn as stated, afresh for every row and column",)
SAMPLE_NOT_CHECKED = (
    "that the sample was drawn at the stated rate, afresh for this release, and is kept secret",
    "that the levels were drawn as stated, on a second such sample, and rows left out for no other reason",
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
        result.not_checked = _not_checked(certificate)
        result.checks.append("the certificate is readable, in canonical form, and fits its own digest")
        result.checks.append(certificate.check_signature(trusted))
        _check_digests(path, certificate)
        result.checks.append(f"{len(certificate.files)} files fit their digests, and there are no others")
        release = Release(certificate=certificate, **read_tables(path, certificate))
        require(release.kind in _CHECKS, "certificate.json: a kind of release that this version cannot check")
        result.checks += [held for check in _CHECKS[release.kind] if (held := check(release, path))]
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


def _not_checked(certificate: Certificate) -> tuple[str, ...]:
    if certificate.body["kind"] == COUNTS:
        return counts_not_checked(certificate)
    if certificate.body["kind"] == ESTIMATES:
        return estimates_not_checked(certificate)
    noisy = not {"noise", "published_intervals"}.isdisjoint(certificate.body["measures"])
    more: tuple[str, ...] = NOISE_NOT_CHECKED if noisy else ()
    more += PERSONS_NOT_CHECKED if "persons" in certificate.body["measures"] else ()
    more += KEPT_NOT_CHECKED if certificate.body["mechanism"].get("keep") else ()
    if not isinstance(certificate.guarantee, SampledDP):
        return (*NOT_CHECKED, *more)
    return ("that the rows are the owner's true records", *NOT_CHECKED[1:], *SAMPLE_NOT_CHECKED, *more)


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


def _check_statement(release: Release, folder: Path) -> str:
    """Check that words and odds of the certificate follow from its guarantee and basis."""
    body, basis = release.certificate.body, release.certificate.basis
    holds: Guarantee | None = guarantee_from(body["holds"]) if "holds" in body else None
    promise = Promise(
        guarantee=release.certificate.guarantee,
        basis=basis,
        mechanism=body["mechanism"],
        assumptions=tuple(Assumption(name, says) for name, says in body["assumptions"].items()),
        holds=holds,
        why=body.get("why", ""),
    )
    require(same(promise.guarantee.to_dict(), body["guarantee"]), "certificate.json: guarantee in another form")
    require(body.keys() <= FIELDS, "certificate.json: states something that no certificate does")
    wrong = "gives a reason why it is not" if promise.why else "does not say why"
    require((basis is Basis.PROVED) != bool(promise.why), f"certificate.json: {basis}, but {wrong}")
    require(holds is None or basis is Basis.CLAIMED, f"certificate.json: {basis}, but states what holds instead")
    require(body["meaning"] == meaning(promise), "certificate.json: the odds do not follow from the guarantee")
    _check_composition(promise, body["composition"])
    if isinstance(promise.guarantee, KAnonymity):
        k = promise.guarantee.k
        stated = body["mechanism"].get("k", k)
        # Asked for a distortion instead, a mechanism promises the least k there is.
        open_k = stated is None and body["mechanism"].get("max_distortion") is not None and k == LEAST_K
        require(stated == k or open_k, "certificate.json: mechanism and guarantee have another k")
    elif body["mechanism"].get("as_published"):
        require(basis is not Basis.PROVED, "certificate.json: proved, but made as published, which is not")
    require(body["time"] == body["spend"]["at"], "certificate.json: its time is not that of the spend")
    return "the odds and composition rule follow from the guarantee"


def _check_proof(release: Release, folder: Path) -> str:
    """Check that the proof named, if any, is the mechanism's; another version may name its sections otherwise."""
    body = release.certificate.body
    if "proof" not in body:  # certificates of older versions name none
        return ""
    proof, due = body["proof"], _due_notes(body["mechanism"])
    fits = proof.keys() == {"project", "version", "sections"} and proof["project"] == PROJECT
    same_software = fits and proof["version"] == body["software"]["dunnage"]
    require(same_software, "certificate.json: the proof is not of its software")
    notes = tuple(proof["sections"])
    if proof["version"] != __version__:
        notes, due = (tuple(dict.fromkeys(note.partition("#")[0] for note in each)) for each in (notes, due))
    require(notes == due, "certificate.json: names another proof than that of its mechanism")
    return "the proof named is that of the mechanism"


def _due_notes(mechanism: Mapping[str, Any]) -> tuple[str, ...]:
    """Ask the mechanism itself where it is proved."""
    if mechanism.get("name") not in MECHANISMS:
        return proof_notes(mechanism)
    try:
        return tuple(f"docs/proofs/{note}" for note in mechanism_from(mechanism).notes())
    except ParameterError as error:
        raise CheckFailed(f"certificate.json: {error}") from None


def _check_composition(promise: Promise, stated: Mapping[str, Any]) -> None:
    rule = composition_rule(promise.guarantee)
    require(stated["rule"] == rule, "certificate.json: the composition rule does not fit the guarantee")
    own = promise.true_loss(Neighbours(stated["neighbours"]))
    totals = [total for total in (stated["total"], stated["total_per_period"]) if total != "none"]
    require(own.bounded or not totals, "certificate.json: states a total, which does not exist after this release")
    fits = all(own.within(Loss(exact(total["epsilon"]), exact(total["delta"]))) for total in totals)
    require(fits, "certificate.json: states a total that is less than this release alone")


def _class_columns(release: Release) -> dict[str, pa.DataType]:
    """Return the columns in which the records of a class look alike, besides public ones, with their types."""
    told = release.certificate.body["mechanism"].get("statistic")
    ends = ("lower", "upper", "mean") if told in ("mean", "multiset") else ("lower", "upper")
    columns: dict[str, pa.DataType] = {}
    for name in generalised(release):
        if is_number(release, name):
            columns |= {f"{name}_{end}": pa.float64() for end in ends}
        else:
            columns[name] = SET_TYPE if is_set_valued(release, name) else pa.string()
        if is_set_valued(release, name) and kind_of(release, name) == Graph.kind:
            columns[f"{name}_diameter"] = pa.float64()
    return columns


def _expected_tables(release: Release) -> dict[str, dict[str, pa.DataType | None]]:
    """Return the tables and columns that the certificate speaks of; None is any type."""
    whole = pa.int64()
    as_is = dict.fromkeys(with_role(release, "public", "sensitive"))
    if not has_classes(release):
        ends = ("", "_lower", "_upper")
        noisy = {f"{name}{end}": pa.float64() for name in generalised(release) for end in ends}
        return {"data": {"row": whole, **as_is, **noisy}}
    classes = _class_columns(release)
    tables: dict[str, dict[str, pa.DataType | None]] = {
        "data": {"row": whole, "class_id": whole, **as_is, **classes},
        "classes": {"class_id": whole, "size": whole, **classes},
    }
    if release.certificate.body["mechanism"].get("statistic") == "multiset":
        values = {name: pa.float64() if is_number(release, name) else pa.string() for name in generalised(release)}
        tables["members"] = {"class_id": whole, **values}
    return tables


def _check_columns(release: Release, folder: Path) -> str:
    """Check that no table or column is there that the certificate does not speak of, and none missing."""
    body = release.certificate.body
    require(len(release.attributes) == len(body["attributes"]), "an attribute is listed twice")
    unchanged = not isinstance(release.certificate.guarantee, KAnonymity) and with_role(release, "sensitive")
    require(not unchanged, "certificate.json: sensitive columns as they are, which differential privacy does not cover")
    expected = _expected_tables(release)
    require(list(release.tables) == list(expected), "the tables are not those that the certificate speaks of")
    for name, columns in expected.items():
        found = release.tables[name]
        fits = found.column_names == list(columns) and all(
            kind in (None, found.schema.field(column).type) for column, kind in columns.items()
        )
        require(fits, f"{name}: the columns are not those that the certificate speaks of")
        missing = [column for column in columns if num_missing(found.column(column))]
        require(not missing, f"{name}: missing values in {', '.join(missing)}")
    return "tables and columns are those that the certificate speaks of, without missing values"


def _check_csv(release: Release, folder: Path) -> str:
    """Check that each CSV file holds the same table as its Parquet file."""
    for name, table in release.tables.items():
        # Arrow writes the widest decimals to CSV but does not read them: they are compared as text, and so are sets.
        wide = [item.name for item in table.schema if pa.types.is_decimal256(item.type) or is_set(item.type)]
        kinds = {item.name: pa.string() if item.name in wide else item.type for item in table.schema}
        text = pacsv.read_csv(
            str(folder / f"{name}.csv"),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
        )
        columns = zip(table.column_names, table.itercolumns(), strict=True)
        expected = [as_text(c) if is_text(c.type) or is_set(c.type) else c.cast(kinds[n]) for n, c in columns]
        same = text.column_names == table.column_names and all(
            found.equals(wanted) for found, wanted in zip(text.itercolumns(), expected, strict=True)
        )
        require(same, f"{name}.csv does not hold the same table as {name}.parquet")
    return "CSV and Parquet files hold the same tables"


def _check_texts(release: Release, folder: Path) -> str:
    """Check that nothing is said of the tables, or hidden in them, that does not follow from them."""
    for name in release.tables:
        with pq.ParquetFile(folder / f"{name}.parquet") as file:
            require(not file.schema_arrow.metadata, f"{name}.parquet holds more than a table")
    if release.certificate.body["software"]["dunnage"] != __version__:  # which may have put it in other words
        return "Parquet files hold tables alone"
    for name, content in release.texts(folder).items():
        require((folder / name).read_bytes() == content, f"{name} does not describe this release")
    return "README.md and datapackage.json describe this release"


def _check_rows(release: Release, folder: Path) -> str:
    num_rows = release.data.num_rows
    if "row" in release.data.column_names:
        rows = release.data.column("row").to_numpy()
        require(bool(np.array_equal(rows, np.arange(num_rows))), "data: column row is not 0, 1, 2 ...")
    return f"{num_rows} rows"


def _in_classes(release: Release) -> pa.Table:
    """Return the rows of data that are in a class: all but those that a sample left out, and noise tells of."""
    return release.data.filter(pc.greater_equal(release.data.column("class_id"), 0)) if release.noisy else release.data


def _check_k(release: Release, folder: Path) -> str:
    """Count k again: smallest group over all public and generalised columns together."""
    if not has_classes(release):
        return ""
    k = k_of(release)
    columns = [*with_role(release, "public"), *_class_columns(release)]
    data = _in_classes(release)
    if not data.num_rows:
        require(not isinstance(release.certificate.guarantee, KAnonymity), "data: no row, so nothing is k-anonymous")
        return f"k = {k} asked, of no rows"
    groups = comparable(data).group_by(columns).aggregate([([], "count_all"), ("class_id", "min"), ("class_id", "max")])
    smallest = int(np.min(groups.column("count_all").to_numpy()))
    require(smallest >= k, f"data: the smallest class has {smallest} records, not {k}")
    require(groups.column("class_id_min").equals(groups.column("class_id_max")), "data: class_id splits a class")
    num_classes = len(np.unique(data.column("class_id").to_numpy()))
    require(groups.num_rows == num_classes, "data: class_id joins records that do not look alike")
    return f"k = {k} asked, {smallest} reached, counted over {', '.join(columns)}"


def _check_classes(release: Release, folder: Path) -> str:
    """Check that sizes, bounds and means are the same wherever they are printed."""
    if release.classes is None:
        return ""
    data = _in_classes(release)
    class_id = data.column("class_id").to_numpy()
    ids = release.classes.column("class_id").to_numpy()
    require(bool(np.array_equal(ids, np.arange(len(ids)))), "classes: class_id is not 0, 1, 2 ...")
    # Looked at before counting: a huge number would be a huge array.
    ends = (int(class_id.min()), int(class_id.max())) if len(class_id) else (0, -1)
    require(ends == (0, len(ids) - 1), "data: a class_id is not in classes")
    sizes = class_sizes(class_id)
    require(bool(np.array_equal(sizes, release.classes.column("size").to_numpy())), "classes: sizes do not add up")
    classes, data = comparable(release.classes), comparable(data)
    for name in _class_columns(release):
        same = np.array_equal(classes.column(name).to_numpy()[class_id], data.column(name).to_numpy())
        require(bool(same), f"classes: {name} differs between classes and data")
    return "class sizes, bounds, nodes, sets and means agree between data and classes"


def _hierarchy(release: Release, name: str) -> Hierarchy:
    return hierarchy_of(domain_from(release.attributes[name]["domain"]))


def _nodes(release: Release, name: str) -> NodeHierarchy:
    return cast("NodeHierarchy", _hierarchy(release, name))


def _check_domains(release: Release, folder: Path) -> str:
    """Check that intervals lie in the public domain, on its grid if they should, and nodes in the public hierarchy."""
    if release.classes is None:
        return ""
    for name in generalised(release):
        if is_number(release, name):
            _check_intervals(release, release.classes, name)
        elif is_clustered(release):
            check_labels(release, release.classes, name)
        else:
            known = set(release.classes.column(name).to_pylist()) <= _nodes(release, name).node_widths.keys()
            require(known, f"classes: {name} has a label that is no node of the public hierarchy")
    return "every interval, node and set lies in the public domain"


def _check_intervals(release: Release, classes: pa.Table, name: str) -> None:
    domain = numeric_domain(release, name)
    lower, upper = (floats(classes, f"{name}_{end}") for end in ("lower", "upper"))
    inside = domain.contains(lower) & domain.contains(upper) & (lower <= upper)
    require(bool(inside.all()), f"classes: an interval of {name} is empty or leaves the public domain")
    if release.certificate.body["mechanism"].get("bounds") == "grid":
        on_grid = domain.on_grid(lower) & domain.on_grid(upper)
        require(bool(on_grid.all()), f"classes: a bound of {name} is not on the public grid")
    if f"{name}_mean" in classes.column_names:
        mean = floats(classes, f"{name}_mean")
        within = (lower <= mean) & (mean <= upper)
        require(bool(within.all()), f"classes: a mean of {name} lies outside its interval")


def _check_levels(release: Release, folder: Path) -> str:
    """Check that each attribute is generalised to the one level of its public hierarchy that is stated."""
    levels = release.certificate.body["measures"].get("levels")
    full_domain = release.certificate.body["mechanism"].get("name") in ("full-domain", "sampled-lattice")
    nodes = [name for name in generalised(release) if not (is_number(release, name) or is_clustered(release))]
    if release.classes is None or (levels is None and not full_domain and not nodes):
        return ""
    stated = isinstance(levels, dict) and levels.keys() == set(generalised(release))
    require(stated, "certificate.json: does not state one level for each generalised attribute")
    for name, level in cast("dict[str, Any]", levels).items():
        hierarchy = _hierarchy(release, name)
        known = type(level) is int and 0 <= level < hierarchy.num_levels
        require(known, f"certificate.json: the hierarchy of {name} has no such level")
        _check_level(release, release.classes, name, level, hierarchy)
    return "every attribute is at one level of its public hierarchy"


def _check_level(release: Release, classes: pa.Table, name: str, level: int, hierarchy: Hierarchy) -> None:
    if isinstance(hierarchy, IntervalHierarchy):
        told = [floats(classes, f"{name}_{end}") for end in ("lower", "upper")]
        at_level = all(map(np.array_equal, told, hierarchy.bounds(told[0], level)))
    else:
        told = [classes.column(name).to_numpy()]
        at_level = set(told[0]) <= set(hierarchy.labels(level))
    require(at_level, f"classes: {name} is not at the level that is stated")
    if release.members is not None:
        class_id = release.members.column("class_id").to_numpy()
        found = _generalisations(release.members.column(name).to_numpy(), level, hierarchy, name)
        fits = all(
            np.array_equal(of_class[class_id], of_member) for of_class, of_member in zip(told, found, strict=True)
        )
        require(fits, f"members: values of {name} are not below the node or interval of their class")


def _generalisations(values: Any, level: int, hierarchy: Hierarchy, name: str) -> tuple[Any, ...]:
    """Return what a level makes of values: lower and upper ends, or labels."""
    inside = hierarchy.domain.contains(values)
    require(bool(inside.all()), f"members: a value of {name} leaves the public domain")
    if isinstance(hierarchy, IntervalHierarchy):
        return hierarchy.bounds(values, level)
    return (np.asarray(hierarchy.labels(level), dtype=object)[hierarchy.domain.codes(values)],)


def _check_members(release: Release, folder: Path) -> str:
    """Check that multisets are sorted and have the size, bounds and mean of their class."""
    if release.members is None or release.classes is None:
        return ""
    class_id = release.members.column("class_id").to_numpy()
    sizes = release.classes.column("size").to_numpy()
    require(bool(class_id.min() >= 0 and class_id.max() < len(sizes)), "members: a class_id is not in classes")
    require(bool(np.array_equal(np.bincount(class_id, minlength=len(sizes)), sizes)), "members: sizes do not add up")
    columns = [sort_key(release.members.column(name).combine_chunks()) for name in generalised(release)]
    in_order = np.lexsort((*reversed(columns), class_id)) == np.arange(len(class_id))
    require(bool(in_order.all()), "members: not sorted, so their order may tell whose they are")
    starts = np.cumsum(sizes) - sizes
    for name in generalised(release):
        if is_number(release, name):
            _check_member_values(release, release.classes, name, starts)
    return "multisets fit the sizes, bounds and means of their classes"


def _check_member_values(release: Release, classes: pa.Table, name: str, starts: IntArray) -> None:
    values = floats(cast("pa.Table", release.members), name)
    least, most = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
    fits = (lower <= least) & (most <= upper)
    bounds = release.certificate.body["mechanism"].get("bounds")
    if bounds == "grid":
        domain = numeric_domain(release, name)
        least, most = domain.grid_values(domain.steps_below(least)), domain.grid_values(domain.steps_above(most))
    if bounds in ("class", "grid"):
        fits &= (least == lower) & (most == upper)
    require(bool(fits.all()), f"members: values of {name} do not fit the bounds of their class")
    means = np.add.reduceat(values, starts) / classes.column("size").to_numpy()
    slack = _TOLERANCE * np.maximum(np.abs(lower), np.abs(upper))
    close = np.abs(means - floats(classes, f"{name}_mean")) <= slack
    require(bool(close.all()), f"members: means of {name} differ")


def _check_measures(release: Release, folder: Path) -> str:
    """Check that every figure of the certificate comes out again from the tables."""
    if release.classes is None:
        return ""
    stated = dict(release.certificate.body["measures"])
    loss = stated.pop("loss")
    stated.pop("levels", None)  # looked at with the hierarchies
    sizes = release.classes.column("size").to_numpy()
    if isinstance(release.certificate.guarantee, KAnonymity):
        suppressed, words = _suppressed(release, stated), "k, class sizes, risks, l, t and loss"
        found = size_measures(sizes, k_of(release), suppressed, fewest_persons(release, sizes))
        found["sensitive"] = _sensitive(release)
        if is_clustered(release):
            found |= cluster_figures(release, release.classes, suppressed)
            words = "k, class sizes, risks, l, t, importance and distortion"
    else:  # what was suppressed would tell of records that are not released
        suppressed, words = 0, "k, class sizes and loss"
        found = {**_NO_CLASSES, "k_asked": k_of(release)}
        found |= {name: size_measures(sizes, k_of(release), 0)[name] for name in found} if len(sizes) else {}
        stated.pop("noise", None)  # looked at with the sample
    wrong = [name for name in found.keys() | stated.keys() if not _agree(found.get(name, ""), stated.get(name, ""))]
    require(not wrong, f"certificate.json: wrong figures: {', '.join(sorted(wrong))}")
    if len(sizes):
        _check_loss(release, release.classes, suppressed, loss)
        check_asked(release, release.classes)
    require(len(sizes) > 0 or loss is None, "certificate.json: states a loss of no rows")
    return f"{words} of the certificate come out again"


def _sensitive(release: Release) -> dict[str, Any]:
    class_id = release.data.column("class_id").to_numpy()
    ordered = order_asked(release.certificate.body["mechanism"])
    columns = {name: sensitive_column(release, name) for name in with_role(release, "sensitive")}
    return {name: sensitive_measures(class_id, column, ordered=ordered) for name, column in columns.items()}


_NO_CLASSES: Mapping[str, Any] = {"records": 0, "k_asked": 0, "k_reached": None, "classes": 0, "class_size": None}


def _suppressed(release: Release, stated: Mapping[str, Any]) -> int:
    """Return how many records a k-anonymous release says are suppressed."""
    suppressed = stated["suppressed"]["count"]
    countable = type(suppressed) is int and suppressed >= 0
    require(countable, "certificate.json: the number of suppressed records is no number")
    _check_limit(release, suppressed)
    return cast("int", suppressed)


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
        require(fits, "certificate.json: more records are suppressed than the mechanism's limit")


def _check_loss(release: Release, classes: pa.Table, suppressed: int, stated: Mapping[str, Any]) -> None:
    alpha = float(exact(release.certificate.body["mechanism"].get("alpha", 1), what="alpha"))
    weights = _importance(release)
    sizes = classes.column("size").to_numpy()
    num_records = int(sizes.sum()) + suppressed
    sums, slack = {}, 0.0
    for name in generalised(release):
        widths, rounding = _widths(release, classes, name)
        sums[name] = float((sizes * widths).sum()) + alpha * suppressed
        slack += weights[name] * float((sizes * rounding).sum())
    total = sum(weights[name] * value for name, value in sums.items())
    pairs = [(total, stated["sum"]), (total / sum(weights.values()) / num_records, stated["total"])]
    pairs += [(value / num_records, stated["attributes"].get(name, math.nan)) for name, value in sums.items()]
    close = all(
        type(said) is not bool and math.isclose(found, said, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE + slack)
        for found, said in pairs
    )
    metric = DISTORTION_METRIC if is_clustered(release) else LOSS_METRIC
    same = stated["attributes"].keys() == sums.keys() and stated["metric"] == metric
    require(close and same, "certificate.json: the loss is wrong")


def _importance(release: Release) -> dict[str, float]:
    """Return what the loss of each generalised attribute counts."""
    if is_clustered(release):
        found: dict[str, float] = release.certificate.body["measures"]["importance"]["weights"]
        return found  # worked out again with the other figures
    given = release.certificate.body["mechanism"].get("importance", {})
    weights = {name: float(exact(given.get(name, 1), what="importance")) for name in generalised(release)}
    sensible = given.keys() <= weights.keys() and all(weight > 0 for weight in weights.values())
    require(sensible, "certificate.json: the importance of attributes makes no sense")
    return weights


def _widths(release: Release, classes: pa.Table, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the width of each class as a share of the domain, and how far rounding may have moved it."""
    if is_clustered(release) and not is_number(release, name):
        return cluster_widths(release, classes, name), np.zeros(len(classes))
    if not is_number(release, name):
        hierarchy = _nodes(release, name)
        widths = [hierarchy.node_widths[label] / hierarchy.whole for label in classes.column(name).to_pylist()]
        return np.asarray(widths), np.zeros(len(widths))
    lower, upper = floats(classes, f"{name}_lower"), floats(classes, f"{name}_upper")
    diameter = numeric_domain(release, name).diameter
    # The loss was added up from decimals, of which a bound is only the nearest double.
    return (upper - lower) / diameter, (np.spacing(np.abs(lower)) + np.spacing(np.abs(upper))) / diameter


_CHECKS: Mapping[str, tuple[Callable[[Release, Path], str], ...]] = {
    ROWS: (
        _check_statement,
        _check_columns,
        _check_csv,
        _check_texts,
        _check_rows,
        _check_k,
        _check_classes,
        _check_domains,
        _check_members,
        _check_levels,
        _check_measures,
        check_noise,
        check_sample,
        _check_proof,
    ),
    COUNTS: (
        _check_statement,
        check_count_columns,
        _check_csv,
        check_cells,
        check_count_loss,
        _check_texts,
        _check_proof,
    ),
    ESTIMATES: (
        _check_statement,
        check_estimate_columns,
        _check_csv,
        check_estimate_lines,
        check_estimate_loss,
        _check_texts,
        _check_proof,
    ),
}
