# SPDX-License-Identifier: Apache-2.0
"""Mechanism: frozen parameters that promise, preview and release. Everything that mechanisms share is here.

A mechanism is one file. It states its name and kind, has its parameters as fields, and implements :meth:`promise` (from
public facts alone), :meth:`prepare` (which may refuse, before anything is spent) and :meth:`draw` (which adds noise,
only after the spend). This base class describes it, reads it back from a certificate and orders the steps of a release.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, PlainSerializer, PlainValidator, StrictBool, ValidationError, ValidationInfo

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError, Problem
from dunnage.exact import decimal_text, exact, plain, shown, shown_number
from dunnage.model.certificate import CountMeasures, ExpectedError, RowMeasures, SpendStatement, certify
from dunnage.model.documents import Model, choices_of, suggestion
from dunnage.model.domains import CodedDomain, Numeric
from dunnage.model.guarantees import MOST_EPSILON, KAnonymity, Promise
from dunnage.model.schema import Schema

if TYPE_CHECKING:  # promises are also made where private rows, budgets and keys are out of reach
    from dunnage.ledger import Ledger
    from dunnage.noise.source import Noise
    from dunnage.publication import Publication
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Foresight:
    """What a mechanism shows the owner before it spends, without noise, so that nobody repeats it. Private."""

    warnings: tuple[str, ...] = ()  # what the owner should not overlook
    lines: tuple[str, ...] = ()  # everything else
    details: Mapping[str, object] = field(default_factory=dict)  # the same as plain data

    def __repr__(self) -> str:
        return "Foresight(private)"

    def to_dict(self) -> dict[str, object]:
        return {"warnings": list(self.warnings), "lines": list(self.lines), **self.details}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome:
    """The result of a mechanism: tables that leave, what the certificate says about them, and what the key keeps."""

    data: pa.Table
    measures: RowMeasures | CountMeasures  # figures that the guarantee lets everyone see
    rows: IntArray | None = None  # dataset row of each released row; None if nothing leads back to rows
    places: IntArray | None = None  # released row of each of `rows`; None if these are all rows, in order
    class_id: IntArray | None = None  # class of each released row, if there are classes
    classes: pa.Table | None = None
    members: pa.Table | None = None
    facts: Mapping[str, int] = field(default_factory=dict)  # further facts that only the owner may know
    left_out: Mapping[str, IntArray] = field(default_factory=dict)  # dataset rows that are not released, by reason
    # Where rows live elsewhere: the key itself, and the numbers of rows in the source that are not released
    drawn: DrawnRows | None = None


class MadeRows(NamedTuple):
    """Released rows of a part of a dataset, in its order."""

    rows: IntArray  # the record of each
    columns: Mapping[str, object]  # what is released of it
    left_out: Mapping[str, IntArray]  # records that are not released, by reason


class RowMaker(Protocol):
    """How a mechanism releases rows where they live. It is sent to tasks."""

    def make(self, dataset: Dataset, noise: Noise) -> MadeRows: ...


class DrawnRows(NamedTuple):
    """Rows that were released where they live, in random order."""

    data: pa.Table
    key: pa.Table
    left_out: Mapping[str, Sequence[int]]  # rows of the source that are not released, by reason


class Mechanism(Model, abc.ABC):
    """Parameters of one way to release a dataset, and what it promises with them."""

    model_config = ConfigDict(strict=False)  # each parameter's type reads its own input

    name: ClassVar[str]  # as in policies and certificates
    kind: ClassVar[Literal["classes", "noisy", "counts"]]  # what is released
    proof: ClassVar[tuple[str, ...]] = ()  # sections of docs/proofs that prove the guarantee
    counts_persons: ClassVar[bool] = False  # whether it can distinguish persons
    counts_trips: ClassVar[bool] = False  # whether rows are trips
    counts_categories: ClassVar[bool] = False  # whether it also counts other rows, by their labels
    fast: ClassVar[bool] = False  # whether it releases many thousand records in seconds
    apart: ClassVar[bool] = False  # whether it handles each combination of public values separately
    seeded: ClassVar[str] = "the noise came from a seed that others may know"  # why seeded noise voids it

    def __init__(self, /, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise ParameterError(" ".join(self._problems(error))) from None

    @classmethod
    def _problems(cls, error: ValidationError) -> list[str]:
        """Say in our own words what is wrong with the parameters. They are public, so they may be printed."""
        problems = []
        for item in error.errors(include_url=False):
            name, given = str(item["loc"][0]) if item["loc"] else "", item.get("input")
            cause = item.get("ctx", {}).get("error")
            if isinstance(cause, Exception):
                problems.append(str(cause))
            elif item["type"] == "missing":
                problems.append(f"{cls.name} needs {name}. It has no default, because you choose what is promised.")
            elif item["type"] == "extra_forbidden":
                problems.append(f"{shown(name)} is not a parameter of {cls.name}. {suggestion(name, cls.model_fields)}")
            elif item["type"] == "bool_type":
                problems.append(f"{name} must be true or false. Got {shown(given)}. Write it without quotes.")
            else:
                choices = ", ".join(choices_of(cls.model_fields[name]))
                problems.append(f"{name} must be one of {choices}. Got {shown(given)}.")
        return problems

    def describe(self) -> dict[str, object]:
        return {"name": self.name, **self.model_dump(mode="json")}

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Mechanism:
        """Rebuild a mechanism from a certificate: the exact inverse of :meth:`describe`."""
        mechanism = cls(**cls._given(description))
        if (described := mechanism.describe()) != dict(description):
            every = sorted(str(name) for name in described.keys() | description.keys())
            strange = [name for name in every if name not in described or described[name] != description.get(name, ...)]
            raise ParameterError(f"the stated {shown(strange[0])} of {cls.name} contradicts its parameters.")
        return mechanism

    @classmethod
    def _given(cls, description: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters of a description, without the values that follow from them."""
        return {name: value for name, value in description.items() if name in cls.model_fields}

    def notes(self) -> tuple[str, ...]:
        """Return the sections of docs/proofs that prove what these parameters keep, or show what they do not keep."""
        return self.proof

    @property
    def pools(self) -> bool:
        """Whether records that are left out go into a file for the next release."""
        return False

    def attributes(self, dataset: Dataset) -> list[dict[str, object]]:
        return dataset.schema.describe()

    @abc.abstractmethod
    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema guarantees. This needs no data."""

    def promise_for(self, dataset: Dataset) -> Promise:
        """State what a release of these rows guarantees: where they live decides how their noise is sampled."""
        promise = self.promise(dataset.schema)
        return promise.with_streams() if dataset.elsewhere and self.kind != "counts" else promise

    def problems(self, schema: Schema) -> Iterator[Problem]:
        """Yield what else the policy must state. Called after :meth:`promise`."""
        yield from ()

    def fold(self, schema: Schema, period: str | None) -> Any:
        """Return what counts all that is needed of the rows before noise, as a fold; None if it needs the rows."""
        return None

    def folded(self, dataset: Dataset) -> Any:
        """Return the result of the fold, wherever the rows live."""
        return dataset.folded if dataset.elsewhere else self.fold(dataset.schema, dataset.period).whole(dataset)

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> Any:
        """Do all work that needs no noise, and refuse what cannot be released. Nothing is spent yet."""
        return None

    @abc.abstractmethod
    def draw(self, dataset: Dataset, prepared: Any, noise: Noise) -> Outcome:
        """Add noise and return the result. Called only after the ledger has accepted the spend."""

    def preview(self, dataset: Dataset) -> Foresight:
        """Show the owner everything that helps to choose parameters, without any noise."""
        return Foresight()

    def warnings(self, dataset: Dataset) -> tuple[str, ...]:
        return self.preview(dataset).warnings

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        """Recount what the tables of a release show about these parameters, from public facts.

        Yields a sentence for each check that passes, and raises :class:`~dunnage.errors.CheckFailed` otherwise.
        """
        yield from ()

    def release(
        self,
        dataset: Dataset,
        *,
        ledger: Ledger,
        noise: Noise,
        progress: Progress | None = None,
        expected: ExpectedError | None = None,  # of counts, predicted from public facts, for the certificate
        review: Callable[[Promise, Any], None] | None = None,  # looks at what was prepared; may refuse
    ) -> Publication:
        """Promise, spend once, add noise, and return the release with its certificate.

        Every refusal comes before the spend, and all noise after it. Only here do private rows, budget and key meet
        the promise, which was made without them.
        """
        from dunnage.publication import Key, Publication
        from dunnage.release import Release

        for given, method, what in (  # verifiers, who load mechanisms, must not reach private rows or ledgers
            (dataset, "keyed_digest", "release takes a Dataset: dn.load(FILE, policy=POLICY)"),
            (ledger, "spend", 'ledger must be a Ledger: dn.Ledger("ledger.sqlite")'),
            (noise, "draw_bytes", "noise must be a Noise: dn.Noise()"),
        ):
            if not hasattr(given, method) or isinstance(given, type):
                raise ParameterError(f"{what}. Got {type(given).__name__}.")
        promise = self.promise_for(dataset)
        if noise.seeded:
            promise = promise.voided(self.seeded)
        prepared = self.prepare(dataset, progress)
        if review is not None:
            review(promise, prepared)
        spend = ledger.spend(promise, dataset.purpose)
        outcome = self.draw(dataset, prepared, noise)
        certificate = certify(
            promise,
            kind="rows" if outcome.rows is not None or outcome.drawn is not None else "counts",
            dataset=dataset.policy.dataset,
            period=dataset.period,
            attributes=self.attributes(dataset),
            measures=outcome.measures
            if expected is None
            else outcome.measures.model_copy(update={"expected": expected}),
            spend=SpendStatement(id=spend.id, at=spend.at, number=spend.number, head=spend.head),
            composed=ledger.composed(dataset.policy.dataset),
        )
        release = Release(certificate=certificate, data=outcome.data, classes=outcome.classes, members=outcome.members)
        columns, parts = {name: np.zeros(0, dtype=np.int64) for name in ("row", "source_row")}, dataset.parts
        if outcome.rows is not None:
            # key : one line per source row, so several for a row of merged ones
            row, position = parts.of(outcome.rows)
            row = row if outcome.places is None else outcome.places[row]
            columns = {"row": row, "source_row": parts.source_rows[position]}
            if outcome.class_id is not None:
                columns["class_id"] = outcome.class_id[row]
            for attribute in dataset.schema.identifiers:
                columns[attribute.name] = parts.column(attribute.name).take(pa.array(position))
        salt = noise.draw_bytes(32)
        digest = dataset.keyed_digest(salt)
        left_out: dict[str, Sequence[int]] = {
            reason: parts.source_rows[parts.of(rows)[1]].tolist()
            for reason, rows in outcome.left_out.items()
            if len(rows)
        }
        table = pa.table(columns)
        if outcome.drawn is not None:
            table, left_out = outcome.drawn.key, dict(outcome.drawn.left_out)
        key = Key(
            table=table, salt=salt, input_digest=digest, facts=outcome.facts, left_out=left_out, cuts=dataset.cuts
        )
        return Publication(release, key)


# Types of parameters. They accept more forms than they keep: 1, 0.1, "1/3" and Fraction(1, 3) all become fractions.


def _number(given: Any, info: ValidationInfo) -> Fraction:
    return exact(given, what=str(info.field_name))


def _epsilon(given: Any, info: ValidationInfo) -> Fraction:
    epsilon = exact(given, what="epsilon")
    if not 0 < epsilon <= MOST_EPSILON:
        raise ParameterError(f"epsilon must be above 0 and at most {MOST_EPSILON}. Got {shown_number(epsilon)}. Try 1.")
    return epsilon


def _confidence(given: Any) -> Fraction:
    confidence = exact(given, what="confidence")
    if not 0 <= confidence < 1:
        raise ParameterError(
            f"confidence must be at least 0 (no intervals) and below 1. Got {shown_number(confidence)}. Try 0.9."
        )
    return confidence


def _k(given: Any) -> int:
    number = int(given) if isinstance(given, Integral) and not isinstance(given, bool) else given  # also NumPy's
    return KAnonymity(k=number, protects="record").k  # refuses an invalid k


def optional(read: Callable[..., Any]) -> PlainValidator:
    def read_if_given(given: Any, info: ValidationInfo) -> Any:
        return None if given is None else read(given, info)

    return PlainValidator(read_if_given)


PLAIN = PlainSerializer(lambda value: None if value is None else plain(value))
Number = Annotated[Fraction, PlainValidator(_number), PLAIN]
OptionalNumber = Annotated[Fraction | None, optional(_number), PLAIN]
Epsilon = Annotated[Fraction, PlainValidator(_epsilon), PLAIN]
OptionalEpsilon = Annotated[Fraction | None, optional(_epsilon), PLAIN]
Confidence = Annotated[Fraction, PlainValidator(_confidence), PLAIN]
OptionalConfidence = Annotated[Fraction | None, optional(lambda given, _: _confidence(given)), PLAIN]
Flag = StrictBool
K = Annotated[int, PlainValidator(_k)]
OptionalK = Annotated[int | None, optional(lambda given, _: _k(given))]

# Numbers by name, in order of names: an immutable, hashable table.
Pairs = tuple[tuple[str, Fraction], ...]


def plain_pairs(pairs: Pairs) -> dict[str, int | float | str]:
    return {name: plain(value) for name, value in pairs}


def label_codes(dataset: Dataset, name: str, domain: CodedDomain | None = None) -> IntArray:
    """Return the position of each label of a column in its domain, with one lookup per distinct label."""
    chosen = cast("CodedDomain", domain or dataset.schema[name].domain)  # the schema has checked the kinds
    encoded = dataset.column(name).dictionary_encode()
    codes = chosen.codes(np.asarray(encoded.dictionary.to_pylist(), dtype=object))
    indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[indices]


def amount(number: Fraction, domain: Numeric) -> str:
    return f"{decimal_text(number)} {domain.unit}".strip()
