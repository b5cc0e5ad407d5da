# SPDX-License-Identifier: Apache-2.0
"""Kinds of release: each owns its tables and columns, its checks, and the words about it.

Releases, verification and texts ask the kind; none of them knows a mechanism by name.
"""

from __future__ import annotations

import abc
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray
from dunnage.errors import CheckFailed
from dunnage.model.certificate import Certificate
from dunnage.model.domains import Domain, Numeric, domain_from
from dunnage.tables.columns import is_set, set_text

if TYPE_CHECKING:
    from dunnage.release import Release
from dunnage.model.guarantees import KAnonymity, SampledDP

ROWS, COUNTS, ESTIMATES = "rows", "counts", "estimates"
"""What a certificate calls its kind of release."""
CELLS = "cells"  # name of the feature of counts that tells every type apart
DROPPED = "trips_dropped"  # the fact in the key of every release of counts
Columns = dict[str, pa.DataType | None]  # columns of a table, in order, with their types; None allows any type
PUBLIC, SENSITIVE, GENERALISED = "public", "sensitive", "quasi-identifier"
Unchecked = tuple[str, ...]
"""What cannot be checked, and the places of a certificate that make it so; without any, it is always so.

A place is a path such as ``measures.features.*.feature``, and after ``~`` a pattern for what stands there. The page
``verify.html`` reads the same rules.
"""
NAMES_NOT_CHECKED = (
    "that names the owner chose (dataset, period, what is protected, columns, units, labels) say nothing about a record"
)


class Kind(abc.ABC):
    table_words: ClassVar[Mapping[str, str]]
    unchecked: ClassVar[tuple[Unchecked, ...]]

    @abc.abstractmethod
    def tables(self, release: Release) -> dict[str, Columns]:
        """Return the tables and columns that the certificate describes."""

    @abc.abstractmethod
    def recount(self, release: Release) -> Iterator[str]:
        """Recompute what follows from the tables alone; yield the checks that passed, or raise :class:`CheckFailed`."""

    def not_checked(self, certificate: Certificate) -> tuple[str, ...]:
        """Return what nobody can check with the folder alone."""
        return unchecked_words(self.unchecked, certificate)

    @abc.abstractmethod
    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        """Describe a column in a few words."""

    def loss_words(self, certificate: Certificate) -> tuple[str, ...]:
        """Say what one protected unit loses, if the odds of the certificate do not say everything."""
        return ()

    def cautions(self, release: Release) -> tuple[str, ...]:
        """Say what would mislead someone who reads the tables alone; shown before everything else."""
        return ()

    @abc.abstractmethod
    def readme(self, release: Release, columns: str) -> str:
        """Write the part of the README after promise and files."""

    @abc.abstractmethod
    def figures(self, release: Release) -> list[str]:
        """Describe the figures of the certificate, one line each."""

    @abc.abstractmethod
    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        """Tell the owner in a line or two what was released."""

    def check_columns(self, release: Release) -> str:
        names = [item.name for item in release.certificate.attributes]
        require(len(set(names)) == len(names), "an attribute is listed twice")
        expected = self.tables(release)
        require(list(release.tables) == list(expected), "the tables are not those of the certificate")
        for name, columns in expected.items():
            table = release.tables[name]
            fits = table.column_names == list(columns) and all(
                kind in (None, table.schema.field(column).type) for column, kind in columns.items()
            )
            require(fits, f"{name}: the columns are not those of the certificate")
            missing = [column for column in columns if _has_missing(table.column(column))]
            require(not missing, f"{name}: missing values in {', '.join(missing)}")
        return "tables and columns are those of the certificate, without missing values"


def unchecked_words(rules: Iterable[Unchecked], certificate: Certificate) -> tuple[str, ...]:
    content = certificate.plain()
    return tuple(words for words, *places in rules if not places or any(_is_stated(content, at) for at in places))


def _is_stated(content: object, place: str) -> bool:
    """Return whether something stands at a place, like the pattern if there is one."""
    path, _, like = place.partition("~")
    values = [content]
    for key in path.split("."):
        if key == "*":
            values = [one for value in values for one in (value.values() if isinstance(value, dict) else value or [])]  # type: ignore[attr-defined]
        else:
            values = [value[key] for value in values if isinstance(value, dict) and key in value]
    return any(re.fullmatch(like, str(value)) if like else bool(value) for value in values)


def fill(template: str, **words: str) -> str:
    return text_of(template if "." in template else f"{template}.md").format(**words)


def text_of(name: str) -> str:
    return Path(__file__).parents[1].joinpath("readme", name).read_text(encoding="utf-8")


def require(condition: bool, failure: str) -> None:
    if not condition:
        raise CheckFailed(failure)


def same(one: object, other: object) -> bool:
    """Return whether plain data are the same in a file: 1 is neither 1.0 nor true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def with_role(release: Release, *roles: str) -> list[str]:
    return [name for role in roles for name, item in release.attributes.items() if item.role == role]


def generalised(release: Release) -> list[str]:
    return with_role(release, GENERALISED)


def is_number(release: Release, name: str) -> bool:
    return release.attributes[name].domain_kind == Numeric.kind


def domain_of(release: Release, name: str) -> Domain:
    return _domain_of(json.dumps(release.attributes[name].domain))


@lru_cache(maxsize=8)
def _domain_of(description: str) -> Domain:
    """Make each domain once: distances in a large network take long."""
    return domain_from(json.loads(description))


def numeric_domain(release: Release, name: str) -> Numeric:
    return cast("Numeric", domain_of(release, name))


def _has_missing(column: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():  # NaN has bits that CSV does not show
        return True
    return bool(column.null_count or (is_set(column.type) and pc.list_flatten(column).null_count))


def comparable(table: pa.Table) -> pa.Table:
    """Return a table with sets as texts, which can be grouped and compared."""
    for index, item in enumerate(table.schema):
        if is_set(item.type):
            table = table.set_column(index, item.name, set_text(table.column(index)))
    return table


def floats(table: pa.Table, name: str) -> FloatArray:
    # Through one array: a chunked array would import pandas if it is installed.
    values: FloatArray = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return values


def kind_of(certificate: Certificate) -> Kind | None:
    if certificate.kind == ROWS:
        from dunnage.release.kinds.rows import ClassesKind, NoisyKind, SlotsKind

        if certificate.rows.slots is not None:
            return SlotsKind()
        # Classes of records that look alike describe the records, or noise does.
        return ClassesKind() if isinstance(certificate.guarantee, KAnonymity | SampledDP) else NoisyKind()
    if certificate.kind == COUNTS:
        from dunnage.release.kinds.counts import CategoriesKind, CountsKind

        return CountsKind() if certificate.counts_trips else CategoriesKind()
    if certificate.kind == ESTIMATES:
        from dunnage.release.kinds.estimates import EstimatesKind

        return EstimatesKind()
    return None
