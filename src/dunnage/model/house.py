# SPDX-License-Identifier: Apache-2.0
"""House: the limits that an organisation sets once, and whether a result may leave under them.

``house.toml`` lies beside the policy or in a folder above it. Every limit is optional. A limit that is exceeded means
that the result may not leave, unless ``[exceptions]`` names who can grant an exception to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from dunnage.errors import CheckFailed, ParameterError, PolicyError, Problem, Refusal
from dunnage.exact import decimal_text, shown
from dunnage.folders import new_file
from dunnage.model.certificate import Certificate
from dunnage.model.documents import Flaws, Listed, Model, to_text
from dunnage.model.guarantees import UNBOUNDED, Basis, Loss, Neighbours, Promise, total
from dunnage.model.policy import Number, PolicyReading, Table, Written, checked_copy, key, read_tables
from dunnage.text import percent, percent_at_most

HOUSE_FILE, HOUSE, SIGNATURE_ENDING = "house.toml", "house", ".dsse"
SINGLING_OUT, LINKABILITY, INFERENCE = "singling out", "linkability", "inference"
RISKS = (SINGLING_OUT, LINKABILITY, INFERENCE)
"""The three risks by which European regulators judge anonymisation (opinion WP216)."""
MAX_EXCEPTION = 200
_ROUNDING = 1e-9  # of figures that were computed with floating point


def _share(value: Fraction) -> Fraction:
    if not 0 <= value <= 1:
        raise Flaws(Problem("must be a share from 0 to 1", remedy="Write 0.2 for 20 %."))
    return value


def _positive(value: Fraction) -> Fraction:
    if value <= 0:
        raise Flaws(Problem("must be above 0", remedy="Leave the line out if there is no limit."))
    return value


Share = Annotated[Number, AfterValidator(_share)]
Positive = Annotated[Number, AfterValidator(_positive)]


class Limits(Table):
    """What a house requires of everything that leaves it."""

    min_k: int | None = key("a whole number, such as 5", None)
    max_epsilon: Positive | None = key("the largest epsilon of one release, such as 1", None)
    max_epsilon_month: Positive | None = key("the largest epsilon of a dataset in a calendar month, such as 4", None)
    max_delta: Share | None = key("the largest delta of one release, such as 0.000001", None)
    basis: Literal["proved", "claimed"] | None = key('"proved" or "claimed"', None)
    max_suppressed: Share | None = key("the largest share of suppressed records, such as 0.05", None)
    max_truck_linkage: Share | None = key("the largest truck linkage, such as 0.2", None)
    max_singling_out: Share | None = key("the largest risk that an audit may show, such as 0.2", None)
    max_linkability: Share | None = key("the largest risk that an audit may show, such as 0.2", None)
    max_inference: Share | None = key("the largest risk that an audit may show, such as 0.5", None)


class HouseTables(Table):
    name: str = key('"Port of Example" or another name', "this house")
    limits: Limits = key("a table [limits]")
    exceptions: dict[str, str] = key('a table limit = "who can grant an exception"', {})


class Exceeded(Model):
    """A limit that a result does not keep."""

    limit: str  # its name in the house file
    sentence: str
    exception_by: str | None = None  # who can grant an exception; None if nobody can


def _verdict(exceeded: Sequence[Exceeded], exception: str | None) -> str:
    if not exceeded:
        return "may leave"
    if any(item.exception_by is None for item in exceeded):
        return "may not leave"
    return "needs an exception" if exception is None else "may leave by exception"


class Clearance(Model):
    """Whether a result may leave under the limits of a house."""

    house: str
    checked: Listed[str] = ()  # names of the limits that could be checked
    exceeded: Listed[Exceeded] = ()
    exception: str | None = None  # who granted one, and why

    verdict: str = Field(default_factory=lambda fields: _verdict(fields["exceeded"], fields["exception"]))

    @property
    def may_leave(self) -> bool:
        return self.verdict.startswith("may leave")

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        if not self.exceeded:
            checked = ", ".join(
                name.removeprefix("min_").removeprefix("max_").replace("_", " ") for name in self.checked
            )
            limits = f"MAY LEAVE under the limits of {self.house} ({checked})"
            return limits if checked else f"NOT CHECKED: no limit of {self.house} applies"
        if self.verdict == "may leave by exception":
            return f"MAY LEAVE BY EXCEPTION, {self.exception}"
        if self.verdict == "may not leave":
            return f"MAY NOT LEAVE under the limits of {self.house}"
        return f"NEEDS AN EXCEPTION by {' and '.join(dict.fromkeys(str(item.exception_by) for item in self.exceeded))}"

    def text(self) -> str:
        return "\n".join([self.headline, *(f"  {item.limit}: {item.sentence}" for item in self.exceeded)])

    def require(self) -> None:
        """Raise :class:`CheckFailed` (exit code 1) unless the result may leave."""
        if not self.may_leave:
            remedy = ""
            if self.verdict == "needs an exception":
                remedy = '\nTo record one, add --exception "NAME: REASON" (exception=).'
            raise CheckFailed(f"{self.text()}{remedy}")

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def joined(self, other: Clearance) -> Clearance:
        """Return the clearance of both checks together."""
        checked = tuple(dict.fromkeys((*self.checked, *other.checked)))
        exceeded = (*self.exceeded, *other.exceeded)
        return Clearance(house=self.house, checked=checked, exceeded=exceeded, exception=self.exception)


class _Figure(NamedTuple):
    limit: str  # name of the limit
    keeps: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class House:
    """The limits of an organisation, and who may grant exceptions."""

    name: str
    limits: Limits
    exceptions: Mapping[str, str]
    path: Path | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> House:
        written = Written.read(path)
        return cls.from_dict(written.document, path=written.path)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], *, path: Path | None = None) -> House:
        tables, problems = read_tables(HouseTables, PolicyReading(document=checked_copy(document, path)))
        if tables is not None:
            names = ", ".join(Limits.model_fields)
            problems += [
                Problem("is not a known limit", where=f"exceptions.{name}", remedy=f"Possible: {names}.")
                for name in tables.exceptions
                if name not in Limits.model_fields
            ]
        if problems or tables is None:
            raise PolicyError(str(path or HOUSE_FILE), problems)
        return cls(name=tables.name, limits=tables.limits, exceptions=tables.exceptions, path=path)

    @classmethod
    def find(cls, start: str | os.PathLike[str] | None) -> House | None:
        """Read ``house.toml`` from a folder or the nearest folder above it; None if there is none."""
        if start is None:
            return None
        place = Path(os.path.abspath(start))
        for folder in (place, *place.parents):
            if (folder / HOUSE_FILE).is_file():
                return cls.read(folder / HOUSE_FILE)
        return None

    @property
    def signature_path(self) -> Path | None:
        return None if self.path is None else self.path.with_name(f"{self.path.name}{SIGNATURE_ENDING}")

    @property
    def is_signed(self) -> bool:
        return self.signature_path is not None and self.signature_path.exists()

    def check_signed(self, people: Mapping[str, str] | None = None) -> None:
        """Refuse a house file that was changed after it was signed, or that none of these people signed."""
        from dunnage.model.envelopes import read_envelope

        name, signature = self.path or HOUSE_FILE, self.signature_path
        if self.path is None or signature is None or not signature.exists():
            raise Refusal(f"{name} is not signed. An officer signs it with: dunnage sign {name} --sign KEY")
        content, names = read_envelope(signature, "the signature of a house file").signers(HOUSE, people or {})
        if content != self.path.read_bytes():
            raise Refusal(f"{name} was changed after it was signed. An officer signs it again with dunnage sign.")
        if people is not None and not names:
            raise Refusal(f"{name} is signed by nobody whom the rule of the dataset names: {', '.join(people)}.")

    @classmethod
    def sign(cls, path: str | os.PathLike[str], key: str | os.PathLike[str]) -> Path:
        """Sign a house file that can be read, as it is; return the file with the signature."""
        from dunnage.model.envelopes import sign

        house = cls.read(path)
        assert house.path is not None
        assert house.signature_path is not None
        envelope = sign(HOUSE, house.path.read_bytes(), key)
        with new_file(house.signature_path) as stream:
            stream.write(to_text(envelope).encode())
        return house.signature_path

    def clear(self, figures: Iterable[_Figure], exception: str | None = None) -> Clearance:
        if exception is not None and not (
            exception.strip() and exception.isprintable() and len(exception) <= MAX_EXCEPTION
        ):
            raise ParameterError(
                f"an exception needs who granted it and why, in 1 to {MAX_EXCEPTION} printable characters. "
                f'For example: --exception "Ada Example: pilot until June". Got {shown(exception)}.'
            )
        checked = list(figures)
        exceeded = [
            Exceeded(limit=item.limit, sentence=item.sentence, exception_by=self.exceptions.get(item.limit))
            for item in checked
            if not item.keeps
        ]
        names = tuple(dict.fromkeys(item.limit for item in checked))
        return Clearance(house=self.name, checked=names, exceeded=tuple(exceeded), exception=exception)

    def of_promise(self, promise: Promise, this_month: Iterable[tuple[Mapping[str, object], Loss]]) -> list[_Figure]:
        """Check a promise, and the month with it; ``this_month`` has guarantee and loss of each spend so far."""
        figures, limit = self.of_statement(promise), self.limits.max_epsilon_month
        loss = _loss(promise)
        if limit is not None and loss is not None:
            month = total([*(other for guarantee, other in this_month if "epsilon" in guarantee), loss])
            keeps = month.epsilon is not None and month.epsilon <= limit
            what = f"with this release the month has {month}; epsilon {decimal_text(limit)} is allowed."
            figures.append(_Figure("max_epsilon_month", keeps, what))
        return figures

    def of_statement(self, stated: Promise | Certificate) -> list[_Figure]:
        """Check basis, k, and the loss that really holds."""
        limits, figures = self.limits, []
        if limits.basis is not None:
            allowed = (Basis.PROVED, Basis.CLAIMED)[: 1 if limits.basis == "proved" else 2]
            what = f"the basis is {stated.basis}; {' or '.join(allowed)} is required."
            figures.append(_Figure("basis", stated.basis in allowed, what))
        k = stated.guarantee.to_dict().get("k")
        if limits.min_k is not None and isinstance(k, int):
            figures.append(_Figure("min_k", k >= limits.min_k, f"k is {k}; at least {limits.min_k} is required."))
        if (loss := _loss(stated)) is not None:
            for name, value, limit in (
                ("max_epsilon", loss.epsilon, limits.max_epsilon),
                ("max_delta", loss.delta if loss.bounded else None, limits.max_delta),
            ):
                if limit is not None:
                    what = f"the release really costs {loss}; {name[4:]} {decimal_text(limit)} is allowed."
                    figures.append(_Figure(name, value is not None and value <= limit, what))
        return figures

    def of_certificate(self, certificate: Certificate) -> list[_Figure]:
        """Check what only a finished release shows: the share that was suppressed."""
        limit = self.limits.max_suppressed
        if limit is None or certificate.kind != "rows" or certificate.rows.suppressed is None:
            return []
        share = certificate.rows.suppressed.share
        return [self._share("max_suppressed", share, f"{percent(share)} of the records are suppressed", limit)]

    def of_linkage(self, linkage: float | None, protects: str) -> list[_Figure]:
        """Check the truck linkage of a plan; without a figure there is nothing to rely on."""
        limit = self.limits.max_truck_linkage
        if limit is None:
            return []
        if linkage is None:
            what = f"the truck linkage of this plan is not known; at most {percent(float(limit))} is allowed."
            return [_Figure("max_truck_linkage", False, what)]
        what = f"someone who knows a {protects} can name its truck {percent_at_most(linkage)} of the time"
        return [self._share("max_truck_linkage", linkage, what, limit)]

    def of_risks(self, worst: Mapping[str, tuple[str, float]]) -> list[_Figure]:
        """Check the worst finding of each of the three risks: its name and its risk from 0 to 1."""
        figures = []
        for risk, (finding, value) in worst.items():
            name = f"max_{risk.replace(' ', '_')}"
            if (limit := getattr(self.limits, name)) is not None:
                figures.append(self._share(name, value, f"{finding} shows a risk of {percent(value)}", limit))
        return figures

    @staticmethod
    def _share(name: str, value: float, what: str, limit: Fraction) -> _Figure:
        keeps = value <= float(limit) + _ROUNDING
        return _Figure(name, keeps, f"{what}; at most {percent(float(limit))} is allowed.")


def _loss(stated: Promise | Certificate) -> Loss | None:
    """Return the loss that really holds, under the stated neighbours; None if epsilon is not the measure."""
    guarantee = stated.guarantee.to_dict()
    if "epsilon" not in guarantee:
        return None
    holds = stated.guarantee if stated.basis is Basis.PROVED else stated.holds
    if holds is None or stated.basis is Basis.VOID:
        return UNBOUNDED
    return holds.plain_loss(Neighbours(str(guarantee.get("neighbours", Neighbours.ADD_REMOVE))))
