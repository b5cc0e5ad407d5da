# SPDX-License-Identifier: Apache-2.0
"""Numbers: speed, load, temperature, told so that one report of all of them gives away no more than epsilon.

:class:`LocalNumeric` makes one report of several numbers with public bounds. The sound default draws a few of them,
evenly and without looking at them, and hides each by a law of :mod:`dunnage.local.numeric_laws`; the published e-L_LDP,
which hides all of them at epsilon each, is one parameter away. Which numbers were drawn is part of the report. Only the
standard library is used: this is part of what a device carries. Proofs: ``docs/proofs/local-numeric.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from dunnage.errors import ParameterError, ReportError
from dunnage.exact import plain, shown, shown_number
from dunnage.guarantees import REPORT_ASSUMPTIONS, Basis, LocalDP, Neighbours, Promise
from dunnage.local.location import Tiered
from dunnage.local.numeric_laws import (
    Duchi,
    JointDuchi,
    LaplaceNumber,
    NumberLaw,
    Piecewise,
    PublishedPiecewise,
    Reading,
    SquareWave,
    Warner,
    hybrid,
)
from dunnage.local.oracles import MOST_ENUMERATED
from dunnage.local.subjects import Quantity, Tier
from dunnage.noise import Noise, integer

MOST_QUANTITIES = 64
EPSILON_EACH = Fraction(5, 2)
"""Where more than one number is drawn, each gets at least this epsilon: floor(epsilon / 2.5) of them are drawn."""
_MOST_VARINT_BYTES = 10
_RARE = 7  # Laplace noise of more than seven scales comes up less than once in a thousand times

Entry = tuple[int, int]  # An attribute and its symbol
Symbol = tuple[int, str, int]  # An attribute, the key of the law that drew its symbol, and the symbol
Points = Callable[[int], int]  # From an attribute to its point; only those drawn are asked for


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """What is drawn and hidden by itself: a quantity, or whether it is there."""

    quantity: Quantity  # The quantity
    # Whether this is the virtual number that is 1 if the quantity has a value and -1 if it is missing
    presence: bool = False

    @property
    def name(self) -> str:
        return f"{self.quantity.name} present" if self.presence else self.quantity.name

    @property
    def steps(self) -> int:
        """The points are -steps .. steps."""
        return 1 if self.presence else self.quantity.steps

    def point(self, value: object, noise: Noise) -> int:
        """Round a value to a point; never raises."""
        if self.presence:
            return 1 if self.quantity.present(value) else -1
        return self.quantity.point(value, noise)


def attributes_of(quantities: Sequence[Quantity]) -> tuple[Attribute, ...]:
    """List the attributes: all quantities in order, then a presence for each that has ``missing = "symbol"``."""
    presences = (Attribute(quantity=quantity, presence=True) for quantity in quantities if quantity.missing == "symbol")
    return (*(Attribute(quantity=quantity) for quantity in quantities), *presences)


def combination(rank: int, num: int, size: int) -> Iterator[int]:
    """Yield the members of a set of ``size`` out of ``num``, by the rank of the set in lexicographic order.

    Examples
    --------
    >>> [tuple(combination(rank, 3, 2)) for rank in range(3)]
    [(0, 1), (0, 2), (1, 2)]
    """
    for member in range(num):
        if not size:
            return
        with_it = math.comb(num - member - 1, size - 1)
        if rank < with_it:
            yield member
            size -= 1
        else:
            rank -= with_it


def _refused(what: str) -> ReportError:
    return ReportError(f"a report of numbers cannot be read: {what}. No device of this task made it: leave it out.")


def _symbol_of(payload: bytes) -> int:
    """Return a payload as a whole number that tells its length, too."""
    return int.from_bytes(payload + b"\x01", "little")


def _payload_of(symbol: int) -> bytes:
    return symbol.to_bytes((symbol.bit_length() + 7) // 8, "little")[:-1]


def _num_bytes(num: int) -> int:
    """Return how many bytes tell ``num`` things apart."""
    return ((num - 1).bit_length() + 7) // 8


@dataclass(frozen=True)
class SampledReport:
    """A report of ``num_sampled`` attributes out of all, drawn evenly, each hidden by its own law.

    An input is one input for each attribute, mixed (the first varies fastest). Two inputs may differ in all attributes,
    so the loss is that of the laws drawn, added up; with all attributes drawn at epsilon each this is e-L_LDP.

    A payload holds the rank of the drawn set and then the symbols, in the order of the attributes: as one number of
    mixed radix in a fixed number of bytes, least first. If a law has endlessly many symbols: the rank in a fixed number
    of bytes, then each symbol as a varint. A symbol of this channel is the payload as a whole number.
    """

    laws: tuple[NumberLaw, ...]  # One for each attribute
    num_sampled: int  # How many are drawn

    @cached_property
    def num_sets(self) -> int:
        return math.comb(len(self.laws), self.num_sampled)

    @property
    def share(self) -> float:
        return self.num_sampled / len(self.laws)

    @cached_property
    def num_inputs(self) -> int:
        return math.prod(law.num_inputs for law in self.laws)

    @cached_property
    def loss(self) -> Fraction | None:
        """What one report gives away at worst: the largest losses that may be drawn together."""
        losses = sorted((law.epsilon if law.loss is None else law.loss for law in self.laws), reverse=True)
        return sum(losses[: self.num_sampled], Fraction(0))

    @cached_property
    def _sizes(self) -> tuple[int | None, ...]:
        return tuple(law.num_symbols for law in self.laws)

    @cached_property
    def _num_payloads(self) -> int | None:
        """How many payloads there are at most, by the laws with most symbols; None if they are endless."""
        sizes = sorted(size for size in self._sizes if size is not None)
        return self.num_sets * math.prod(sizes[-self.num_sampled :]) if len(sizes) == len(self.laws) else None

    @property
    def payload_bits(self) -> int:
        """Bits of a payload; with Laplace noise of nearly all payloads, as there is no limit to them."""
        if self._num_payloads is not None:
            return (self._num_payloads - 1).bit_length()
        rare = [law.code(math.ceil(_RARE * law.noise_scale)) for law in self.laws if isinstance(law, LaplaceNumber)]
        return 8 * (_num_bytes(self.num_sets) + self.num_sampled * len(varint(max(rare))))

    def reading(self, attribute: int, key: str) -> Reading:
        """Return how symbols of a key that :meth:`read` gave for an attribute are read."""
        return self.laws[attribute].part(key)

    def worst(self, attribute: int) -> float:
        """Return the variance of an attribute's estimated mean, times the number of devices, at worst.

        It comes from the noise in the reports that tell of the attribute, and from these being a sample of all; the
        worst is taken over all ways in which the attribute may be spread among devices.
        """
        return self.laws[attribute].worst(self.share) / self.share

    def draw(self, points: Points, noise: Noise) -> bytes:
        rank = noise.below(self.num_sets)
        drawn = []
        for attribute in combination(rank, len(self.laws), self.num_sampled):
            law = self.laws[attribute]
            drawn.append((attribute, law.perturb(law.index_of(points(attribute), noise), noise)))
        return self._pack(rank, drawn)

    def _pack(self, rank: int, drawn: Sequence[Entry]) -> bytes:
        if self._num_payloads is None:
            varints = (varint(self.laws[attribute].code(symbol)) for attribute, symbol in drawn)
            return rank.to_bytes(_num_bytes(self.num_sets), "little") + b"".join(varints)
        number = 0
        for attribute, symbol in reversed(drawn):
            law = self.laws[attribute]
            number = number * (law.num_symbols or 1) + law.code(symbol)
        return (number * self.num_sets + rank).to_bytes(_num_bytes(self._num_payloads), "little")

    def entries(self, payload: bytes) -> list[Entry]:
        """Unpack a payload: the exact inverse of packing."""
        endless, found = self._num_payloads is None, []
        start, number = _num_bytes(self.num_sets), 0
        rank, rest = int.from_bytes(payload[:start], "little"), payload[start:]
        if endless and (len(payload) < start or rank >= self.num_sets):
            raise _refused("it does not say which numbers it tells")
        if self._num_payloads is not None:
            due = _num_bytes(self._num_payloads)
            if len(payload) != due:
                raise _refused(f"{len(payload)} bytes where {due} are due")
            number, rank = divmod(int.from_bytes(payload, "little"), self.num_sets)
        for attribute in combination(rank, len(self.laws), self.num_sampled):
            size = self._sizes[attribute]
            if endless:
                code, rest = _read_varint(rest)
                if size is not None and code >= size:
                    raise _refused("a symbol is none of its law")
            else:
                number, code = divmod(number, size or 1)
            found.append((attribute, self.laws[attribute].symbol(code)))
        if number:
            raise _refused("its number is too large")
        if endless and rest:
            raise _refused(f"{len(rest)} bytes too many")
        return found

    def read(self, payload: bytes) -> list[Symbol]:
        """Read a payload as attributes, keys of laws and their symbols."""
        return [(attribute, *self.laws[attribute].split(symbol)) for attribute, symbol in self.entries(payload)]

    def perturb(self, index: int, noise: Noise) -> int:
        rank, inputs = noise.below(self.num_sets), self._inputs(index)
        members = combination(rank, len(self.laws), self.num_sampled)
        return _symbol_of(self._pack(rank, [(at, self.laws[at].perturb(inputs[at], noise)) for at in members]))

    def _inputs(self, index: int) -> list[int]:
        found = []
        for law in self.laws:
            index, own = divmod(index, law.num_inputs)
            found.append(own)
        return found

    def exponent(self, index: int, symbol: int) -> Fraction | None:
        inputs = self._inputs(index)
        parts = [self.laws[at].exponent(inputs[at], own) for at, own in self.entries(_payload_of(symbol))]
        known = [part for part in parts if part is not None]
        return sum(known, Fraction(0)) if len(known) == len(parts) else None

    def symbols(self) -> list[int]:
        """All symbols there are; refuses where they are too many, or endlessly many."""
        most = self._num_payloads
        if most is None or most * self.num_inputs > MOST_ENUMERATED:
            raise ParameterError("the reports are too many to list. Use fewer steps or quantities, or another method.")
        found = []
        for rank in range(self.num_sets):
            members = combination(rank, len(self.laws), self.num_sampled)
            num = math.prod(self._sizes[at] or 1 for at in members)
            numbers = range(rank, num * self.num_sets, self.num_sets)
            found += [_symbol_of(number.to_bytes(_num_bytes(most), "little")) for number in numbers]
        return found


@dataclass(frozen=True)
class JointReport:
    """A report of all attributes at once by Duchi's law for many numbers: one sign each, for all of epsilon.

    A payload holds one bit for each attribute, the first lowest. As a channel it is :class:`JointDuchi`.
    """

    law: JointDuchi  # The joint law
    steps: tuple[int, ...]  # The points of each attribute are -steps .. steps

    @property
    def share(self) -> float:
        """Share of the reports that tell of one attribute: all."""
        return 1.0

    @property
    def payload_bits(self) -> int:
        return len(self.steps)

    @property
    def num_inputs(self) -> int:
        return self.law.num_inputs

    @property
    def loss(self) -> Fraction | None:
        return self.law.loss

    def reading(self, attribute: int, key: str) -> Reading:
        if key != self.law.key or not 0 <= attribute < len(self.steps):
            raise ParameterError(f"the joint law has no part {shown(key)} for attribute {attribute}.")
        return self.law.reading

    def worst(self, attribute: int) -> float:
        return self.law.reading.worst()

    def draw(self, points: Points, noise: Noise) -> bytes:
        """Round every attribute to a sign at random, draw signs for all, and pack them."""
        index = 0
        for attribute, steps in enumerate(self.steps):
            index |= (noise.below(2 * steps) < steps + points(attribute)) << attribute
        return self.perturb(index, noise).to_bytes(_num_bytes(self.num_inputs), "little")

    def read(self, payload: bytes) -> list[Symbol]:
        due, signs = _num_bytes(self.num_inputs), int.from_bytes(payload, "little")
        if len(payload) != due or signs >= self.num_inputs:
            raise _refused(f"{len(payload)} bytes where {len(self.steps)} bits in {due} are due")
        return [(attribute, self.law.key, 1 if signs >> attribute & 1 else -1) for attribute in range(len(self.steps))]

    def perturb(self, index: int, noise: Noise) -> int:
        return self.law.perturb(index, noise)

    def symbols(self) -> range:
        return self.law.symbols()

    def exponent(self, index: int, symbol: int) -> Fraction:
        return self.law.exponent(index, symbol)


def varint(number: int) -> bytes:
    """Write seven bits a byte, lowest first, the highest bit set on all bytes but the last."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _read_varint(data: bytes) -> tuple[int, bytes]:
    """Read a number and return what follows it; only the shortest form is taken."""
    number = 0
    for place, byte in enumerate(data[:_MOST_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if place and not byte:
                raise _refused("a number is longer than it must be")
            return number, data[place + 1 :]
    raise _refused("a number does not end")


Report = SampledReport | JointReport

_LAWS: Mapping[str, Callable[..., NumberLaw]] = {
    "hybrid": hybrid,
    "piecewise": Piecewise,
    "harmony": Duchi,
    "laplace": LaplaceNumber,
    "square-wave": SquareWave,
    "warner": Warner,
}


def _law(make: Callable[..., NumberLaw], attribute: Attribute, epsilon: Fraction) -> NumberLaw:
    # For a yes or no, keeping it with odds of e^epsilon is the best there is.
    return (Warner if attribute.presence else make)(epsilon=epsilon, steps=attribute.steps)


def published_report(attributes: Sequence[Attribute], epsilon: Fraction) -> SampledReport:
    """Return e-L_LDP: every attribute through L-PM (with its right threshold) at the whole epsilon."""
    return SampledReport(tuple(_law(PublishedPiecewise, at, epsilon) for at in attributes), len(attributes))


def sampled_report(
    attributes: Sequence[Attribute], epsilon: Fraction, *, method: str, sampled: int | None
) -> SampledReport:
    """Return the sound report: ``sampled`` attributes, drawn evenly, share epsilon."""
    num = sampled or (1 if method == "harmony" else num_sampled(epsilon, len(attributes)))
    return SampledReport(tuple(_law(_LAWS[method], attribute, epsilon / num) for attribute in attributes), num)


def joint_report(attributes: Sequence[Attribute], epsilon: Fraction) -> JointReport:
    law = JointDuchi(epsilon=epsilon, dimensions=len(attributes))
    return JointReport(law, tuple(attribute.steps for attribute in attributes))


def num_sampled(epsilon: Fraction, num_attributes: int) -> int:
    """Return how many attributes are best drawn: ``max(1, min(d, floor(epsilon / 2.5)))``, Wang et al. 2019."""
    return max(1, min(num_attributes, math.floor(epsilon / EPSILON_EACH)))


@dataclass(frozen=True, kw_only=True)
class LocalNumeric(Tiered[Report]):
    """Report numbers with public bounds, a few drawn at random or all at once.

    Parameters
    ----------
    quantities
        The numbers.
    epsilon, tiers
        What one report may give away, over all its numbers: one number for all devices, or public tiers.
    method
        ``hybrid``, ``piecewise``, ``laplace`` (means), ``square-wave`` (distributions), ``warner`` (each quantity a yes
        or no: ``steps = 1``), ``harmony`` (one number, by Duchi's law), ``duchi`` (the signs of all numbers at once).
    sampled
        How many numbers a report tells; None for ``max(1, min(d, floor(epsilon / 2.5)))``.
    as_published
        The published e-L_LDP: every number at the whole epsilon, by the piecewise law with the published window.

    Guarantee
    ---------
    Epsilon-local differential privacy of one report, proved; ``as_published``: claimed, and really d times epsilon.

    Assumptions
    -----------
    Bounds, steps and tiers are public; at every slot a report is sent, whatever there is to report.

    Runtime
    -------
    Some 20 microseconds for each number told.

    Utility
    -------
    Unbiased means; :meth:`predicted_sd` says how far they are off before anything is collected.

    References
    ----------
    Yao et al. 2024, Algorithms 1 and 2; Wang et al. 2019 (sampling, hybrid); Nguyen et al. 2016 (Harmony); Duchi,
    Jordan, Wainwright 2018; Li et al. 2020 (square wave); Warner 1965.

    Examples
    --------
    >>> speed = Quantity(name="speed", low="0", high="120", unit="km/h")
    >>> load = Quantity(name="load", low="0", high="20", unit="t")
    >>> numbers = LocalNumeric(quantities=(speed, load), epsilon="1")
    >>> payload = numbers.perturb({"speed": 63.5, "load": None}, tier="all", noise=Noise())
    >>> len(payload), [round(sd, 2) for sd in numbers.predicted_sd("all", 5000)]
    (2, [2.61, 0.43])
    """

    name: ClassVar[str] = "local-numeric"
    subject: ClassVar[str] = "quantities"
    num_steps: ClassVar[tuple[int, int]] = (1, 1)
    parameters: ClassVar[tuple[str, ...]] = ("method", "as_published", "sampled")
    methods: ClassVar[tuple[str, ...]] = (*_LAWS, "duchi")
    quantities: Sequence[Quantity]
    method: str = "hybrid"
    as_published: bool = False
    sampled: int | None = None
    attributes: tuple[Attribute, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set_levels()
        quantities = tuple(self.quantities) if isinstance(self.quantities, tuple | list) else ()
        if not 1 <= len(quantities) <= MOST_QUANTITIES or not all(isinstance(each, Quantity) for each in quantities):
            raise ParameterError(
                f"quantities must be a list of 1 to {MOST_QUANTITIES} Quantity. Give Quantity(name=...)."
            )
        if len({quantity.name for quantity in quantities}) < len(quantities):
            raise ParameterError("quantities must have different names. Rename one.")
        object.__setattr__(self, "quantities", quantities)
        object.__setattr__(self, "attributes", attributes_of(self.quantities))
        self._check_method()
        object.__setattr__(self, "_laws", {tier.name: self._report(tier.epsilon) for tier in self.levels})

    def _check_method(self) -> None:
        if self.method not in self.methods:
            raise ParameterError(f"method must be one of {', '.join(self.methods)}. Got {shown(self.method)}.")
        if self.as_published and (self.method not in ("hybrid", "piecewise") or self.sampled is not None):
            raise ParameterError("as_published has a method of its own and tells all numbers. Leave the others out.")
        if self.method == "warner" and any(quantity.steps != 1 for quantity in self.quantities):
            raise ParameterError("warner is for a yes or no. Give every quantity steps = 1, or use hybrid.")
        fixed = {"harmony": 1, "duchi": len(self.attributes)}.get(self.method)
        most = len(self.attributes)
        if self.sampled is not None and (type(self.sampled) is not int or not 1 <= self.sampled <= most):
            raise ParameterError(f"sampled must be a whole number from 1 to {most}. Got {shown(self.sampled)}.")
        if fixed and self.sampled not in (None, fixed):
            raise ParameterError(f"{self.method} tells {fixed} of {most} numbers. Leave sampled out.")

    def _report(self, epsilon: Fraction) -> Report:
        if self.as_published:
            return published_report(self.attributes, epsilon)
        if self.method == "duchi":
            return joint_report(self.attributes, epsilon)
        return sampled_report(self.attributes, epsilon, method=self.method, sampled=self.sampled)

    def reading(self, tier: Tier | str, attribute: int, key: str) -> Reading:
        """Return how the symbols are read that :meth:`read` gives for an attribute under a key."""
        return self.channel(tier).reading(attribute, key)

    def perturb(self, value: object, *, tier: Tier | str, noise: Noise) -> bytes:
        """Draw a report of a value for each quantity; there is always one, whatever the values."""
        report, values = self.channel(tier), self._values(value)

        def point(at: int) -> int:
            attribute = self.attributes[at]
            return attribute.point(values.get(attribute.quantity.name), noise)

        return report.draw(point, noise)

    def _values(self, value: object) -> Mapping[Any, object]:
        """Return private values by the names of their quantities."""
        if isinstance(value, Mapping):
            return value
        names = [quantity.name for quantity in self.quantities]
        try:
            return dict(zip(names, value, strict=False))  # type: ignore[call-overload]
        except Exception:  # a private value of any type at all must not stop the report
            return {}

    def read(self, payload: bytes, *, tier: Tier | str) -> list[Symbol]:
        """Read a payload as triples: attribute (see :attr:`attributes`), key of the law, symbol of that law."""
        return self.channel(tier).read(payload)

    def predicted_sd(self, tier: Tier | str, num_devices: int) -> tuple[float, ...]:
        """Return the standard deviation of each quantity's estimated mean, in its unit, at worst.

        The worst is taken over all ways in which a number may be spread among devices, all of this tier. A quantity
        with ``missing = "symbol"`` is taken to be missing hardly ever.
        """
        report, num = self.channel(tier), integer(num_devices, "num_devices", least=1)
        variances = [report.worst(at) / num for at in range(len(self.attributes))]
        # A mean over those present is a ratio; where all are present its variance gains that of their share.
        shares = {at.quantity.name: v / 4 for at, v in zip(self.attributes, variances, strict=True) if at.presence}
        return tuple(
            float((quantity.high - quantity.low) / 2) * math.sqrt(variance + shares.get(quantity.name, 0.0))
            for quantity, variance in zip(self.quantities, variances, strict=False)
        )

    def describe(self) -> dict[str, object]:
        return {
            "name": self.name,
            "quantities": [quantity.to_dict() for quantity in self.quantities],
            "tiers": {tier.name: plain(tier.epsilon) for tier in self.levels},
            "method": "published-piecewise" if self.as_published else self.method,
            "sampled": {tier.name: self.num_told(tier) for tier in self.levels},
            "as_published": self.as_published,
        }

    def num_told(self, tier: Tier | str) -> int:
        report = self.channel(tier)
        return report.num_sampled if isinstance(report, SampledReport) else len(self.attributes)

    def promise(self) -> Promise:
        """State what one report guarantees, for the tier that gives away most; needs no data."""
        epsilon, num = max(tier.epsilon for tier in self.levels), len(self.attributes)
        drawn = any(self.channel(tier).share < 1 for tier in self.levels)
        middle = [quantity.name for quantity in self.quantities if quantity.missing == "middle"]
        stated = Promise(
            guarantee=LocalDP(epsilon=epsilon, protects="report", neighbours=Neighbours.REPLACE_ONE),
            basis=Basis.PROVED,
            mechanism=self.describe(),
            assumptions=REPORT_ASSUMPTIONS,
            in_clear=("which of the numbers a report tells, drawn without looking at them",) if drawn else (),
            warnings=(f"a missing number counts as the middle of its domain: {', '.join(middle)}",) if middle else (),
            notes=("local-numeric.md#whole-reports",),
        )
        if not self.as_published:
            return stated
        loss = num * epsilon
        return replace(
            stated,
            basis=Basis.CLAIMED,
            claim=f"epsilon {shown_number(epsilon)} for all numbers of a report",
            holds=LocalDP(epsilon=loss, protects="report", neighbours=Neighbours.REPLACE_ONE),
            why=f"each of {num} numbers is hidden at the whole epsilon: a report gives away {shown_number(loss)}",
        )
