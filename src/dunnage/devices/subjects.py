# SPDX-License-Identifier: Apache-2.0
"""What devices report on: Quantity, a number with public bounds, and Grid, the cells of a public box; and how: Tier.

Quantity and Grid map any private value, even a missing one, to a point or a cell, exactly and without ever raising an
error: whether a device reports must not depend on the value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from dunnage.errors import ParameterError, TaskError
from dunnage.exact import Exact, Json, exact, plain, shown
from dunnage.noise.source import Noise

MIN_EPSILON, MAX_EPSILON = Fraction(1, 10**6), 100  # of one report: below it says nothing, above it hides nothing
MAX_LEVELS = 12
MAX_STEPS = 1 << 20
MAX_TEXT = 64


def task_error(what: str, got: object, remedy: str) -> TaskError:
    return TaskError(f"{what}. Got {shown(got)}. {remedy}")


def set_text(owner: object, name: str, what: str, *, empty: bool = False) -> None:
    value = getattr(owner, name)
    fits = isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable() and value == value.strip()
    if not fits or not (value or empty):
        raise task_error(f"{what} must be a short printable text", value, f"Write at most {MAX_TEXT} characters.")


def set_number(owner: object, name: str, what: str) -> Fraction:
    try:
        number = exact(getattr(owner, name), what=what)
    except ParameterError as error:
        raise TaskError(str(error)) from None
    object.__setattr__(owner, name, number)
    return number


def check_whole(value: object, what: str, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise task_error(f"{what} must be a whole number from {least} to {most}", value, "Choose one in that range.")


def number_text(value: Fraction) -> str:
    return str(plain(value))


def _plain_data(value: Any) -> Json:
    if isinstance(value, Fraction):
        return number_text(value)
    if isinstance(value, tuple):
        return [_plain_data(item) for item in value]
    return value.to_dict() if isinstance(value, Described) else value


@dataclass(frozen=True, kw_only=True)
class Described:
    """A part of a task, written field by field: numbers as text, and without fields that are None."""

    def to_dict(self) -> dict[str, Json]:
        data = {item.name: _plain_data(getattr(self, item.name)) for item in fields(self)}
        return {name: value for name, value in data.items() if value is not None}


def read_number(value: object) -> Fraction | float | None:
    """Read a private number exactly: a fraction, an infinite float, or None if it is missing or not a number."""
    # This never raises an error, so whether a device reports cannot depend on the value.
    if isinstance(value, Fraction | int):
        return Fraction(value)
    if value is None or isinstance(value, str | bytes | complex):
        return None
    try:
        # Beyond 400 digits a decimal is as good as infinite or zero; as a fraction it would fill the memory.
        short = isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < 400
        number = Fraction(value) if short else float(value)  # type: ignore[arg-type, call-overload]
    except Exception:  # a private value of any type at all must not stop the report
        return None
    if isinstance(number, Fraction) or math.isinf(number):
        return number
    return None if math.isnan(number) else Fraction(number)


@dataclass(frozen=True, kw_only=True)
class Tier(Described):
    """A public level of privacy, chosen without looking at what is reported."""

    name: str
    epsilon: Fraction  # stated loss of one report (with a window: of the window)

    def __post_init__(self) -> None:
        set_text(self, "name", "the name of a tier")
        if set_number(self, "epsilon", f"epsilon of tier {self.name}") <= 0:
            raise task_error(f"epsilon of tier {self.name} must be above 0", number_text(self.epsilon), "Try 1.")


@dataclass(frozen=True, kw_only=True)
class Quantity(Described):
    name: str  # its name in reports and estimates
    low: Fraction  # low, high: public bounds; a value outside is moved to the nearer one
    high: Fraction
    unit: str = ""  # unit of the bounds, for people
    steps: int = 1024  # the grid: [low, high] becomes the points -steps .. steps
    # "symbol": a second, virtual number in {-1, 1} reports whether the number is present, so that the mean is that of
    # numbers which are. "middle": a missing number is reported as the middle of its domain, which biases the mean.
    # Policies say "symbol" by default; a task that does not say is read as version 0.1 read it.
    missing: str = "middle"

    def __post_init__(self) -> None:
        set_text(self, "name", "the name of a quantity")
        set_text(self, "unit", f"the unit of {self.name}", empty=True)
        low, high = (set_number(self, key, f"{key} of {self.name}") for key in ("low", "high"))
        if low >= high:
            raise task_error(f"low of {self.name} must be below high", number_text(low), "Swap the two.")
        check_whole(self.steps, f"steps of {self.name}", 1, MAX_STEPS)
        if self.missing not in ("middle", "symbol"):
            raise task_error(
                f"missing of {self.name} must be symbol or middle", self.missing, "Use symbol for unbiased means."
            )

    def present(self, value: object) -> bool:
        """Return whether there is a number; an infinite one counts, NaN and text do not."""
        return read_number(value) is not None

    def normalised(self, value: object) -> Fraction:
        number = read_number(value)
        if number is None:
            return Fraction(0)
        if number <= self.low:
            return Fraction(-1)
        if number >= self.high:
            return Fraction(1)
        return (2 * Fraction(number) - self.low - self.high) / (self.high - self.low)

    def point(self, value: object, noise: Noise) -> int:
        """Round a value at random to a point of -steps .. steps, so that its mean is exactly the clamped value."""
        scaled = self.normalised(value) * self.steps
        below = math.floor(scaled)
        return below + noise.bernoulli(scaled - below) if scaled != below else below

    def in_units(self, normalised: float) -> float:
        return float((self.low + self.high) / 2) + normalised * float((self.high - self.low) / 2)


@dataclass(frozen=True, kw_only=True)
class Grid(Described):
    """A box cut into 2^(levels - 1) columns and as many rows; the number of a cell is its quadtree (Morton) code."""

    # The code has 2(levels - 1) bits, a bit of the column before a bit of the row, the coarsest first; columns count
    # from the west, rows from the south. Its first 2(area_levels - 1) bits name the area, the rest the place inside it
    # (Yao et al. 2024, Algorithm 4, steps 3 to 8).

    box: tuple[Fraction, Fraction, Fraction, Fraction]  # west, south, east, north, in degrees
    levels: int  # levels of the quadtree; level 1 is the box itself
    area_levels: int = 1  # levels that name the area, from 1 (one area: the box) to `levels`

    def __post_init__(self) -> None:
        box: object = self.box
        if isinstance(box, str) or not isinstance(box, Sequence) or len(box) != 4:
            raise task_error(
                "the box of a grid must be west, south, east, north", box, "Write four numbers in degrees."
            )
        try:
            west, south, east, north = (exact(side, what="a side of the box") for side in box)
        except ParameterError as error:
            raise TaskError(str(error)) from None
        if not (-180 <= west < east <= 180 and -90 < south < north < 90):
            raise task_error(
                "a box must have west below east and south below north, without a pole",
                ", ".join(map(number_text, (west, south, east, north))),
                "Write west, south, east, north in degrees; a box cannot cross the date line.",
            )
        if float(west) == float(east) or float(south) == float(north):
            raise task_error("the box is too narrow", number_text(min(east - west, north - south)), "Make it wider.")
        object.__setattr__(self, "box", (west, south, east, north))
        check_whole(self.levels, "levels of a grid", 1, MAX_LEVELS)
        check_whole(self.area_levels, "area_levels of a grid", 1, self.levels)

    @cached_property
    def num_columns(self) -> int:
        return 1 << (self.levels - 1)

    @property
    def num_rows(self) -> int:
        return self.num_columns

    @property
    def num_cells(self) -> int:
        return self.num_columns**2

    @property
    def outside(self) -> int:
        """Input for a place that is outside the box or missing: one past the last cell."""
        return self.num_cells

    @property
    def num_areas(self) -> int:
        return 1 << 2 * (self.area_levels - 1)

    @property
    def inner_bits(self) -> int:
        return 2 * (self.levels - self.area_levels)

    @property
    def num_inner(self) -> int:
        return 1 << self.inner_bits

    def cell(self, longitude: object, latitude: object) -> int:
        """Return the exact cell of a place; ``outside`` if it is missing, not a number or not in the box."""
        # A place on an inner border belongs to the cell east or north of it, one on the east or north side to the last
        # cell.
        steps = []
        for value, low, high in zip((longitude, latitude), self.sides[:2], self.sides[2:], strict=True):
            number = read_number(value)
            if not isinstance(number, Fraction) or not low <= number <= high:
                return self.outside
            steps.append(min(math.floor((number - low) * self.num_columns / (high - low)), self.num_columns - 1))
        return self.cell_at(*steps)

    @cached_property
    def sides(self) -> tuple[Fraction, ...]:
        """The sides as the nearest doubles, because positions are doubles: a place at 30.8 lies on a side at 30.8."""
        return tuple(Fraction(float(side)) for side in self.box)

    def cell_at(self, column: int, row: int) -> int:
        # The bits of a number, read as digits of base 4: a zero before each bit.
        return int(f"{column:b}", 4) << 1 | int(f"{row:b}", 4)

    def column_row(self, cell: int) -> tuple[int, int]:
        column, row = (
            sum((code >> 2 * at & 1) << at for at in range((code.bit_length() + 1) // 2)) for code in (cell >> 1, cell)
        )
        return column, row

    def area(self, cell: int) -> int:
        return cell >> self.inner_bits

    def inner(self, cell: int) -> int:
        return cell & (self.num_inner - 1)

    def joined(self, area: int, inner: int) -> int:
        return area << self.inner_bits | inner

    def neighbours(self, cell: int, hops: int = 1) -> list[int]:
        columns, rows = (range(max(0, at - hops), min(self.num_columns, at + hops + 1)) for at in self.column_row(cell))
        return sorted(self.cell_at(column, row) for column in columns for row in rows)

    def bounds(self, cell: int) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        west, south, east, north = self.box
        column, row = self.column_row(cell)
        width, height = (east - west) / self.num_columns, (north - south) / self.num_rows
        return west + column * width, south + row * height, west + (column + 1) * width, south + (row + 1) * height

    def centre(self, cell: int) -> tuple[float, float]:
        west, south, east, north = self.bounds(cell)
        return float((west + east) / 2), float((south + north) / 2)

    @cached_property
    def pitch_km(self) -> tuple[Fraction, Fraction]:
        """Width and height of a cell in kilometres, both rounded down."""
        # A degree of latitude counts as 110.57 km, its smallest length on the WGS 84 ellipsoid. A degree of longitude
        # counts as 111.31 km times the cosine (series to six decimals, rounded down) of the latitude of the box
        # farthest from the equator. So no distance in the box is overstated, and a loss per kilometre is at most that
        # per true kilometre.
        west, south, east, north = self.box
        pi = Fraction(314159265358979323856, 10**20)  # rounded up, so the angle is too large and its cosine too small
        angle = max(abs(south), abs(north)) * pi / 180
        term, total = Fraction(1), Fraction(0)
        for k in range(12):  # the terms alternate and shrink, and the last one is negative, so the sum is too small
            total += term
            term *= -angle * angle / ((2 * k + 1) * (2 * k + 2))
        cosine = max(Fraction(math.floor(total * 10**6), 10**6), Fraction(1, 10**6))
        wide = (east - west) * Fraction("111.31") * cosine / self.num_columns
        return wide, (north - south) * Fraction("110.57") / self.num_rows


class _ReportLaw(Protocol):
    @property
    def payload_bits(self) -> int: ...

    @property
    def loss(self) -> Fraction | None: ...


LawType = TypeVar("LawType", bound=_ReportLaw)


@dataclass(frozen=True, kw_only=True)
class Tiered(Generic[LawType]):
    epsilon: Exact | None = None
    tiers: Sequence[Tier] = ()
    levels: tuple[Tier, ...] = field(init=False, repr=False, compare=False)
    _laws: dict[str, LawType] = field(init=False, repr=False, compare=False)

    def _set_levels(self) -> None:
        given: object = self.tiers
        if (self.epsilon is None) == (not given):
            raise ParameterError(
                "a local mechanism needs either epsilon or tiers, which have no default. Got both or neither."
            )
        levels = tuple(given) if isinstance(given, tuple | list) else ()
        if self.epsilon is not None:
            levels = (Tier(name="all", epsilon=exact(self.epsilon, what="epsilon")),)
            object.__setattr__(self, "epsilon", levels[0].epsilon)
        if {type(tier) for tier in levels} != {Tier} or len({tier.name for tier in levels}) < len(levels):
            raise ParameterError("tiers must be a list of Tier(name=..., epsilon=...) with different names.")
        object.__setattr__(self, "tiers", tuple(self.tiers))
        object.__setattr__(self, "levels", levels)

    def channel(self, tier: Tier | str) -> LawType:
        name = tier if isinstance(tier, str) else tier.name
        level = next((level for level in self.levels if level.name == name), None)
        if level is None or (isinstance(tier, Tier) and tier != level):
            names = ", ".join(level.name for level in self.levels)
            raise ParameterError(f"this mechanism has no tier {shown(name)}. Use {names}.")
        return self._laws[name]

    def payload_bits(self, tier: Tier | str) -> int:
        return self.channel(tier).payload_bits

    def true_loss(self, tier: Tier | str) -> Fraction | None:
        """Return the largest loss of one report, between any two inputs; None if there is no bound."""
        return self.channel(tier).loss
