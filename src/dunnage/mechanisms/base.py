# SPDX-License-Identifier: Apache-2.0
"""Mechanism: frozen parameters that promise, preview and release; what all mechanisms share is written here once.

A mechanism is one file. It names itself and its kind, has its parameters as fields, and implements :meth:`promise`
(from public facts alone), :meth:`prepare` (what may be refused before anything is spent) and :meth:`draw` (noise, only
after the spend). Describing it, reading it back from a certificate, and the order of a release follow from that.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, PlainSerializer, PlainValidator, StrictBool, ValidationError, ValidationInfo

from dunnage.arrays import IntArray
from dunnage.errors import ParameterError, Problem
from dunnage.exact import decimal_text, exact, plain, shown, shown_number
from dunnage.model.certificate import CountMeasures, RowMeasures, SpendStatement, certify
from dunnage.model.documents import Model, choices_of, suggestion
from dunnage.model.domains import CodedDomain, Numeric
from dunnage.model.guarantees import KAnonymity, Promise
from dunnage.model.laws import MOST_EPSILON
from dunnage.model.schema import Schema

if TYPE_CHECKING:  # a promise is asked for where private rows, budgets and keys are out of reach
    from dunnage.ledger import Ledger
    from dunnage.noise.source import Noise
    from dunnage.publication import Publication
    from dunnage.release import Release
    from dunnage.tables.dataset import Dataset

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Foresight:
    """What a mechanism tells the owner before it spends. Private: it is printed for the owner, and enters no release.

    Nothing is drawn for it, so that it cannot be used to draw until one likes the outcome.
    """

    warnings: tuple[str, ...] = ()  # what the owner should not overlook
    lines: tuple[str, ...] = ()  # what else there is to know
    details: Mapping[str, object] = field(default_factory=dict)  # the same as plain data

    def __repr__(self) -> str:
        return "Foresight(private)"

    def to_dict(self) -> dict[str, object]:
        return {"warnings": list(self.warnings), "lines": list(self.lines), **self.details}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome:
    """What a mechanism has drawn: tables that leave, what the certificate says of them, and what the key keeps."""

    data: pa.Table
    measures: RowMeasures | CountMeasures  # figures that the guarantee lets everyone see
    rows: IntArray | None = None  # dataset row of each released row; None where nothing leads back to rows
    class_id: IntArray | None = None  # class of each released row, if there are classes
    classes: pa.Table | None = None
    members: pa.Table | None = None
    facts: Mapping[str, int] = field(default_factory=dict)  # what else only the owner may know


class Mechanism(Model, abc.ABC):
    """Parameters of one way to release a dataset, and what it promises with them."""

    model_config = ConfigDict(strict=False)  # types of parameters read what is given themselves

    name: ClassVar[str]  # as in policies and certificates
    kind: ClassVar[Literal["classes", "noisy", "counts"]]  # what is released
    proof: ClassVar[tuple[str, ...]] = ()  # where in docs/proofs the guarantee is proved
    counts_persons: ClassVar[bool] = False  # whether it can tell persons apart
    counts_trips: ClassVar[bool] = False  # whether rows are trips
    fast: ClassVar[bool] = False  # whether many thousand records are released in seconds
    apart: ClassVar[bool] = False  # whether it looks at each combination of public values by itself
    seeded: ClassVar[str] = "the noise was drawn from a seed that others may know"  # why seeded noise voids it

    def __init__(self, /, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise ParameterError(" ".join(self._problems(error))) from None

    @classmethod
    def _problems(cls, error: ValidationError) -> list[str]:
        """Say in our words what is wrong with parameters; those are public, so that they may be printed."""
        problems = []
        for item in error.errors(include_url=False):
            name, given = str(item["loc"][0]) if item["loc"] else "", item.get("input")
            cause = item.get("ctx", {}).get("error")
            if isinstance(cause, Exception):
                problems.append(str(cause))
            elif item["type"] == "missing":
                problems.append(f"{cls.name} needs {name}: what it promises is yours to choose, so it has no default.")
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
        """Rebuild a mechanism from what a certificate states: the exact inverse of :meth:`describe`."""
        mechanism = cls(**cls._given(description))
        described = mechanism.describe()
        if described != dict(description):
            every = sorted(str(name) for name in described.keys() | description.keys())
            strange = [name for name in every if name not in described or described[name] != description.get(name, ...)]
            raise ParameterError(f"{shown(strange[0])} of {cls.name} cannot be what is stated, beside its parameters.")
        return mechanism

    @classmethod
    def _given(cls, description: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters of a description, without what follows from them."""
        return {name: value for name, value in description.items() if name in cls.model_fields}

    def notes(self) -> tuple[str, ...]:
        """Return where in docs/proofs it is proved what these parameters keep, or shown what they do not."""
        return self.proof

    @property
    def pools(self) -> bool:
        """Whether records that are left out wait in a file for the next release."""
        return False

    def attributes(self, dataset: Dataset) -> list[dict[str, object]]:
        return dataset.schema.describe()

    @abc.abstractmethod
    def promise(self, schema: Schema) -> Promise:
        """State what a release under this schema will guarantee; needs no data."""

    def problems(self, schema: Schema) -> Iterator[Problem]:
        """Find what a policy must tell besides; asked once the promise was made."""
        yield from ()

    def prepare(self, dataset: Dataset, progress: Progress | None = None) -> Any:
        """Work out all that needs no noise, and refuse what cannot be released: nothing is spent yet."""
        return None

    @abc.abstractmethod
    def draw(self, dataset: Dataset, prepared: Any, noise: Noise) -> Outcome:
        """Draw what is released; called only after the ledger has accepted the spend."""

    def preview(self, dataset: Dataset) -> Foresight:
        """Tell the owner everything that helps to choose parameters; draws nothing."""
        return Foresight()

    def warnings(self, dataset: Dataset) -> tuple[str, ...]:
        return self.preview(dataset).warnings

    def recount(self, release: Release, schema: Schema) -> Iterator[str]:
        """Count again what the tables of a release tell of these parameters.

        Says what held, and raises :class:`~dunnage.errors.CheckFailed` for what did not; public facts are at hand.
        """
        yield from ()

    def release(
        self, dataset: Dataset, *, ledger: Ledger, noise: Noise, progress: Progress | None = None
    ) -> Publication:
        """Promise, spend once, draw, and release with its certificate.

        Whatever can be refused is refused before the spend, and noise is first drawn after it. Here alone private rows,
        budget and key meet what was promised without them.
        """
        from dunnage.publication import Key, Publication
        from dunnage.release import Release

        promise = self.promise(dataset.schema)
        if noise.seeded:
            promise = promise.voided(self.seeded)
        prepared = self.prepare(dataset, progress)
        spend = ledger.spend(promise, dataset.purpose)
        drawn = self.draw(dataset, prepared, noise)
        certificate = certify(
            promise,
            kind="rows" if drawn.rows is not None else "counts",
            dataset=dataset.policy.dataset,
            period=dataset.period,
            attributes=self.attributes(dataset),
            measures=drawn.measures,
            spend=SpendStatement(id=spend.id, at=spend.at),
            composed=ledger.statement(dataset.policy.dataset).composed(),
        )
        release = Release(certificate=certificate, data=drawn.data, classes=drawn.classes, members=drawn.members)
        columns = {name: np.zeros(0, dtype=np.int64) for name in ("row", "source_row")}
        if drawn.rows is not None:
            # key : a line per source row, so several for a row of merged ones
            parts = dataset.parts
            row, position = parts.of(drawn.rows)
            columns = {"row": row, "source_row": parts.source_rows[position]}
            if drawn.class_id is not None:
                columns["class_id"] = drawn.class_id[row]
            for attribute in dataset.schema.identifiers:
                columns[attribute.name] = parts.column(attribute.name).take(pa.array(position))
        salt = noise.draw_bytes(32)
        digest = dataset.keyed_digest(salt)
        return Publication(release, Key(table=pa.table(columns), salt=salt, input_digest=digest, facts=drawn.facts))


# Types of parameters. What may be given is wider than what is kept: 1, 0.1, "1/3" and Fraction(1, 3) are all exact.


def _number(given: Any, info: ValidationInfo) -> Fraction:
    return exact(given, what=str(info.field_name))


def _epsilon(given: Any, info: ValidationInfo) -> Fraction:
    epsilon = exact(given, what="epsilon")
    if not 0 < epsilon <= MOST_EPSILON:
        raise ParameterError(
            f"epsilon must be more than 0 and at most {MOST_EPSILON}. Got {shown_number(epsilon)}. Use 1, say."
        )
    return epsilon


def _confidence(given: Any) -> Fraction:
    confidence = exact(given, what="confidence")
    if not 0 <= confidence < 1:
        raise ParameterError(
            f"confidence must be at least 0 (no intervals) and below 1. Got {shown_number(confidence)}. Use 0.9, say."
        )
    return confidence


def _k(given: Any) -> int:
    return KAnonymity(k=given, protects="record").k  # refuses a k that is no k


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

# Numbers by name, in order of names: a table that cannot be changed and can be hashed.
Pairs = tuple[tuple[str, Fraction], ...]


def plain_pairs(pairs: Pairs) -> dict[str, int | float | str]:
    return {name: plain(value) for name, value in pairs}


def label_codes(dataset: Dataset, name: str, domain: CodedDomain | None = None) -> IntArray:
    """Return the position of each label of a column in its domain; each distinct one is looked up once."""
    chosen = cast("CodedDomain", domain or dataset.schema[name].domain)  # the schema has checked the kinds
    encoded = dataset.column(name).dictionary_encode()
    codes = chosen.codes(np.asarray(encoded.dictionary.to_pylist(), dtype=object))
    indices: IntArray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[indices]


def amount(number: Fraction, domain: Numeric) -> str:
    return f"{decimal_text(number)} {domain.unit}".strip()
