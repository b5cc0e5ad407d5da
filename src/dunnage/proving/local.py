# SPDX-License-Identifier: Apache-2.0
"""Devices: what one report, and a lifetime of reports, really give away.

Nothing that a mechanism says of itself is taken on trust. What one report gives away is found three ways:

- from the *exponents* of its channel, over every output and every input, in fractions;
- by *replaying* its own ``perturb`` with every random decision taken all ways, each with its exact probability, so that
  what is checked is the code that draws;
- from *draws* with real entropy, which must follow the replayed law, or else are taken as those of a closed box.

The largest of these is compared with what is promised, and with what the vehicle's allowance is charged. Where a loss
is known both from exponents and by replaying, the two must be the same: what a mechanism says of itself is not enough
to convict it either.
"""

from __future__ import annotations

import itertools
import math
import operator
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client, mechanism_of
from dunnage.devices.numbers import LiteralPiecewise, LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation, spread
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.devices.task import SECONDS_PER_DAY, Limits, Purpose, Schedule, Task
from dunnage.errors import AllowanceError, ParameterError
from dunnage.exact import shown_number
from dunnage.guarantees import Promise, WithinCluster
from dunnage.noise import Noise
from dunnage.proving.replay import Decisions, NotEnumerable, Outcomes, Reach, epsilon_between, largest
from dunnage.proving.statistical import UNLIKELY, agrees, lower_bound
from dunnage.proving.verdict import FAILS, HOLDS, UNBOUNDED, VOID, Checks, Verdict, judged, within

_CONFIDENCE = 1 - UNLIKELY  # of a bound from draws: a check that is right must not fail by chance
_DIGITS = 9  # of a loss that was replayed: paths that were not followed touch none of them
_SAME = 1e-8  # how far apart a loss from exponents and one that was replayed may be
_LEAST_MOVED = 1e-6  # how likely a displacement is, against none, whose exponent is compared with the code
_FURTHEST = 16  # columns and rows by which the planar law moves a place, as far as its exponents are looked at


# Replaying what a device draws. A uniform number stays undecided until the code looks at it, and then only as far as it
# looks, so that comparing 64 random digits with a threshold is one decision of two ways. Loops that refuse a draw never
# end: paths that are too unlikely are left out, and with what chance is kept.

CUT = 1e-13
"""A path of decisions less likely than this is not followed; with what chance is kept."""
MOST_LISTED = 1 << 12
"""Largest uniform draw whose values are listed; of a larger one only comparisons are followed."""
_SURELY = 1e6  # an output so much likelier than all that was not followed is impossible where it was not met


class _TooUnlikely(Exception):
    """The path is not worth following."""


class _Restarted(Exception):
    """A round was refused, and the next begins as if nothing had been."""


class Undecided(Decisions):
    """Decisions of a device: a uniform number is decided only as far as the code looks at it.

    Whether 64 random digits are below a threshold is then one decision of two ways, and a loop that draws until
    something holds is one path a round, followed until it is too unlikely.
    """

    __slots__ = ("_draws_left",)

    def __init__(self, script: Sequence[int], most_draws: int | None = None) -> None:
        super().__init__(script, Reach(steps=1, beyond="left out"))
        self._draws_left = most_draws

    def _take(self, values: Sequence[Any], chances: Sequence[float]) -> Any:
        """Take the next decision, among those that are worth following."""
        worth = [at for at, chance in enumerate(chances) if self.chance * chance >= CUT]
        if len(worth) < len(chances):
            self.complete = False
        if not worth:
            raise _TooUnlikely
        return super()._take([values[at] for at in worth], [chances[at] for at in worth])

    def decide(self, chances: Sequence[float]) -> int:
        return int(self._take(range(len(chances)), chances))

    def _count(self) -> None:
        if self._draws_left is not None:
            if not self._draws_left:
                raise _Restarted
            self._draws_left -= 1

    def bits(self, n: int) -> int:
        return self.below(1 << n)

    def below(self, n: int) -> int:
        self._count()
        # To the code that draws it is a whole number like any other.
        return _Drawn(self, [range(n)], int) if n <= MOST_LISTED else _Word(self, n)  # type: ignore[return-value]

    def _yes(self, chance: float) -> bool:
        self._count()
        return super()._yes(chance)

    def discrete_laplace(self, scale: int | Fraction) -> int:
        self._count()
        step = 1 / float(scale)
        far = math.ceil(-math.log(CUT) / step)
        values = range(-far, far + 1)
        return int(self._take(values, [math.tanh(step / 2) * math.exp(-step * abs(value)) for value in values]))


class _Drawn:
    """A uniform number, or a function of one, that is not decided yet."""

    __slots__ = ("_left", "_noise", "_value")

    def __init__(self, noise: Undecided, left: list[Sequence[int]], value: Callable[[int], Any]) -> None:
        # What the uniform number may still be is shared: what one function of it shows all others know.
        self._noise, self._left, self._value = noise, left, value

    def joined(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        mine = self._value
        if isinstance(other, int):
            return _Drawn(self._noise, self._left, lambda at: function(mine(at), other))
        if isinstance(other, _Drawn) and other._left is self._left:
            its = other._value
            return _Drawn(self._noise, self._left, lambda at: function(mine(at), its(at)))
        return function(int(self), other)

    def __index__(self) -> int:
        parts: dict[int, list[int]] = defaultdict(list)
        for at in self._left[0]:
            parts[self._value(at)].append(at)
        values, num = list(parts), len(self._left[0])
        way = self._noise.decide([len(parts[value]) / num for value in values]) if len(values) > 1 else 0
        self._left[0] = parts[values[way]]
        return int(values[way])

    def __bool__(self) -> bool:
        return bool(int(self.joined(0, operator.ne)))

    def __hash__(self) -> int:
        return hash(int(self))

    def __eq__(self, other: object) -> bool:
        return bool(self.joined(other, operator.eq))

    def __invert__(self) -> Any:
        return self.joined(-1, operator.xor)

    def __getattr__(self, name: str) -> Any:
        if name == "bit_count":
            return lambda: self.joined(0, lambda value, _: int.bit_count(value))
        return getattr(int(self), name)  # any other look decides it


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(b, a)


def _left_open(function: Callable[[Any, Any], Any]) -> Callable[[_Drawn, Any], Any]:
    return lambda self, other: self.joined(other, function)


def _decided(function: Callable[[Any, Any], Any]) -> Callable[[_Drawn, Any], Any]:
    return lambda self, other: function(int(self), other)


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[_Drawn, Any], bool]:
    return lambda self, other: bool(self.joined(other, function))  # which decides this and no more


_MAKERS: Mapping[Callable[..., Any], tuple[str, ...]] = {
    _left_open: ("mul", "and_", "or_", "xor", "lshift", "rshift"),
    _decided: ("add", "sub", "floordiv", "mod"),  # what is added up is told, so it may as well be decided
    _compared: ("lt", "le", "gt", "ge", "ne"),
}
for _made, _names in _MAKERS.items():
    for _name in _names:
        _function = getattr(operator, _name)
        setattr(_Drawn, f"__{_name.rstrip('_')}__", _made(_function))
        setattr(_Drawn, f"__r{_name.rstrip('_')}__", _made(_swapped(_function)))


class _Word:
    """A uniform number out of very many, of which the code may ask only whether it is below or equal to another."""

    __slots__ = ("_left", "_noise")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, noise: Undecided, size: int) -> None:
        self._noise, self._left = noise, [range(size)]

    def __lt__(self, other: int) -> bool:
        return self._split([range(part.start, max(part.start, min(part.stop, other))) for part in self._left])

    def __ge__(self, other: int) -> bool:
        return not self < other

    def __eq__(self, other: object) -> bool:
        at = operator.index(other)  # type: ignore[arg-type]
        return self._split([range(at, at + 1) if at in part else range(part.start, part.start) for part in self._left])

    def __ror__(self, other: int) -> _Word:
        if other:
            raise NotEnumerable
        return self

    def _split(self, inside: Sequence[range]) -> bool:
        """Decide whether the number lies in the given piece of each part that it may still lie in."""
        yes, num = _size(inside), _size(self._left)
        found = bool(self._noise.decide(((num - yes) / num, yes / num))) if 0 < yes < num else yes == num
        pieces: list[range] = []
        for part, piece in zip(self._left, inside, strict=True):
            pieces += [piece] if found else [range(part.start, piece.start), range(piece.stop, part.stop)]
        self._left = [piece for piece in pieces if piece.start < piece.stop]
        return found


def _size(parts: Sequence[range]) -> int:
    return sum(part.stop - part.start for part in parts)  # which len cannot say of a part of 2^64


def replayed(draw: Callable[[Noise], Hashable], *, most_draws: int | None = None) -> Outcomes:
    """Find the law of what a function draws, by taking every decision all ways."""
    found: dict[Hashable, list[float]] = defaultdict(list)
    refused, runs, complete = [0.0], 0, True
    script: list[int] | None = []
    while script is not None:
        noise = Undecided(script, most_draws)
        try:
            output = draw(noise)
            found[output].append(noise.chance)
        except _Restarted:
            refused.append(noise.chance)
        except _TooUnlikely:
            complete = False
        complete, runs, script = complete and noise.complete, runs + 1, noise.following()
    kept = 1 - math.fsum(refused)
    chances = {output: math.fsum(parts) / kept for output, parts in found.items()}
    missed = 0.0 if complete else max(0.0, 1 - math.fsum(chances.values())) + 1e-15
    return Outcomes(chances=chances, missed=missed, runs=runs)


def loss_between(one: Outcomes, other: Outcomes) -> float | str:
    """Return the worst loss between two inputs; no bound if an output of one is surely none of the other."""
    for here, there in ((one, other), (other, one)):
        if any(chance > _SURELY * there.missed and not there.chances.get(y) for y, chance in here.chances.items()):
            return UNBOUNDED
    return epsilon_between(one, other)


# One setting of a mechanism

ANY, WITHIN, ACROSS = "any two values", "values of one area", "values of two areas"


@dataclass(frozen=True, kw_only=True)
class Setting:
    mechanism: Any  # Anything with `promise`, `perturb`, `channel` and `true_loss`
    variant: str  # What sets it apart
    values: Sequence[Any]  # Private values: between these `perturb` is replayed, and the first and the last are drawn
    expected: str = HOLDS  # The verdict that must come out
    scope: str = ANY  # Between which values a loss is looked for
    tier: str = "all"  # The tier of the device
    # Whether `perturb` itself can be replayed; if not, its draws are taken as those of a closed box
    replays: bool = True
    # Replay the law of the oracle on so many inputs, where its own are too many; 0 to leave that out
    law_inputs: int = 0
    # Enumerate the outputs of the oracle on so many inputs, where its own are too many; 0 for its own
    few_inputs: int = 0
    most_draws: int | None = None  # How often one round of a law that may refuse a draw draws
    num_drawn: int = 2_000  # How many reports are drawn of either value
    most_pairs: int = 60_000  # Most pairs of an input and an output that are enumerated
    # How many reports of the last value are looked at as witnesses, where outputs are too many to enumerate
    witnesses: int = 0
    # What is looked at of a report of a closed box: all of it, or less where outputs are very many
    view: Callable[[bytes], Hashable] = bytes
    # Distance of two values in kilometres, if the promise is for one kilometre
    distance: Callable[[Any, Any], float] | None = None

    def draw(self, value: Any, noise: Noise) -> bytes:
        payload: bytes = self.mechanism.perturb(value, tier=self.tier, noise=noise)
        return payload


@dataclass(frozen=True)
class _Found:
    """A loss that was found, and how, and what is wrong besides; with a confidence if it is a bound from draws."""

    loss: float | str
    how: str
    problem: str = ""
    confidence: float | None = None


def examine(setting: Setting) -> Verdict:
    started = time.perf_counter()
    stated = list(_from_exponents(setting))
    found = [
        *stated,
        *_from_replays(setting, stated),
        *_from_law(setting),
        *_from_displacements(setting),
        *_from_witnesses(setting),
        *([] if setting.replays or setting.witnesses else _from_box(setting)),
    ]
    worst = largest(each.loss for each in found)
    measured = worst if isinstance(worst, str) else round(worst, _DIGITS)
    promise = setting.mechanism.promise()
    claimed, held = _claimed(setting, promise)
    # What the allowance of a vehicle is charged for one report; with ``planar`` that is for the whole box.
    loss = setting.mechanism.true_loss(setting.tier)
    charged = UNBOUNDED if loss is None or setting.distance is not None else float(loss)
    # Nothing may exceed the smaller of what is said and what is charged.
    holds = charged if within(charged, held, "epsilon") else held
    exactly = any(each.confidence is None and each.loss == worst for each in found)
    problems = tuple(each.problem for each in found if each.problem)
    if within(measured, held, "epsilon") and not within(measured, charged, "epsilon"):
        problems += (f"its vehicle is charged less for it, epsilon {charged:.4g}",)
    return Verdict.of(
        setting.mechanism.name,
        setting.variant,
        basis=promise.basis,
        claimed=claimed,
        holds=None if holds == claimed else holds,
        measured=measured,
        confidence=None if exactly else _CONFIDENCE,
        method="; ".join(each.how for each in found),
        expected=setting.expected,
        sentence=_sentence(setting, claimed, held, measured, problems),
        started=started,
        problems=problems,
    )


def _from_exponents(setting: Setting) -> Iterator[_Found]:
    """Look at every output and every input of the channel, or every input in scope."""
    channel = setting.mechanism.channel(setting.tier)
    if setting.few_inputs:
        channel = replace(setting.mechanism.oracle(setting.tier), num_inputs=setting.few_inputs)
    try:
        symbols = channel.symbols()
    except ParameterError:
        return
    inputs: Sequence[int] = range(channel.num_inputs)
    if setting.scope != ANY:
        inputs = sorted({setting.mechanism.index(value) for value in setting.values})
    if len(symbols) * len(inputs) > setting.most_pairs:
        return
    loss = _spread_over(channel, symbols, inputs)
    yield _Found(loss, f"all {len(symbols):,} outputs of {len(inputs)} inputs enumerated")


def _spread_over(channel: Any, symbols: Sequence[int], inputs: Sequence[int]) -> float | str:
    """Return the largest difference of exponents between some inputs, over some outputs."""
    losses = [spread([channel.exponent(at, symbol) for at in inputs]) for symbol in symbols]
    known = [loss for loss in losses if loss is not None]
    return float(max(known)) if len(known) == len(losses) else UNBOUNDED


def _difference(stated: float | str, drawn: float | str) -> str:
    """Return what is wrong where the exponents of a law and its code are not those of one law."""
    texts = (isinstance(stated, str), isinstance(drawn, str))
    if stated == drawn if any(texts) else abs(float(stated) - float(drawn)) <= _SAME:
        return ""
    told = [loss if isinstance(loss, str) else f"epsilon {loss:.4g}" for loss in (stated, drawn)]
    return f"its code is not that of the law it states: {told[1]} by its decisions, {told[0]} by its exponents"


def _from_replays(setting: Setting, stated: Sequence[_Found]) -> Iterator[_Found]:
    """Replay ``perturb`` for each value, and compare real draws of two of them with the law that is found."""
    if not setting.replays:
        return
    draws = [partial(setting.draw, value) for value in setting.values]
    laws = [replayed(draw, most_draws=setting.most_draws) for draw in draws]
    loss = largest(
        _per_unit(loss_between(laws[a], laws[b]), setting, a, b) for a, b in itertools.combinations(range(len(laws)), 2)
    )
    problem = _difference(stated[0].loss, loss) if stated else ""
    yield _Found(loss, f"its code replayed for {len(laws)} values, every decision all ways", problem)
    yield _drawn_as([(draws[0], laws[0]), (draws[-1], laws[-1])], setting.num_drawn)


def _per_unit(loss: float | str, setting: Setting, one: int, other: int) -> float | str:
    if setting.distance is None or isinstance(loss, str):
        return loss
    apart = setting.distance(setting.values[one], setting.values[other])
    return loss / apart if apart else (0.0 if loss < 1e-9 else UNBOUNDED)


def _from_law(setting: Setting) -> Iterator[_Found]:
    """Replay the law of the oracle on few inputs, and compare real draws with it."""
    if not setting.law_inputs:
        return
    law = replace(setting.mechanism.oracle(setting.tier), num_inputs=setting.law_inputs)
    draws = [partial(_symbol, law, at) for at in range(setting.law_inputs)]
    laws = [replayed(draw) for draw in draws]
    loss = _worst(laws)
    problem = _difference(_spread_over(law, law.symbols(), range(law.num_inputs)), loss)
    yield _Found(loss, f"its law on {setting.law_inputs} inputs replayed, every decision all ways", problem)
    yield _drawn_as(list(zip(draws[:2], laws, strict=False)), setting.num_drawn)


def _symbol(law: Any, index: int, noise: Noise) -> int:
    return int(law.perturb(index, noise))


def _worst(laws: Sequence[Outcomes]) -> float | str:
    return largest(loss_between(one, other) for one, other in itertools.combinations(laws, 2))


def _drawn_as(draws: Sequence[tuple[Callable[[Noise], Hashable], Outcomes]], num: int) -> _Found:
    noise = Noise()
    pvalues = [agrees(Counter(draw(noise) for _ in range(num)), law.chances) for draw, law in draws]
    agree = len(pvalues) * min(pvalues) > UNLIKELY
    told = "follow that law" if agree else "do not follow that law"
    problem = "" if agree else "reports that were really drawn do not follow the law of its code"
    return _Found(0.0, f"{num * len(draws):,} reports drawn {told}", problem)


def _from_displacements(setting: Setting) -> Iterator[_Found]:
    """Look at what a planar law loses for each kilometre, before anything is put on the border of the box."""
    if setting.distance is None:
        return
    law = setting.mechanism.channel(setting.tier)
    reach = range(-_FURTHEST, _FURTHEST)
    exponents = {at: law.displacement_exponent(*at) for at in itertools.product(reach, repeat=2)}
    width, height = law.grid.pitch_km

    def per_km(one: tuple[int, int], other: tuple[int, int]) -> float:
        apart = ((one[0] - other[0]) * width) ** 2 + ((one[1] - other[1]) * height) ** 2
        return math.sqrt((exponents[one] - exponents[other]) ** 2 / apart)

    steps = ((1, 0), (0, 1), (1, 1), (1, -1))
    beside = [(at, (at[0] + across, at[1] + along)) for at in exponents for across, along in steps]
    pairs = [*((at, (0, 0)) for at in exponents if any(at)), *(pair for pair in beside if pair[1] in exponents)]
    moves = replayed(law.displacement, most_draws=setting.most_draws).chances
    still = moves[0, 0]
    followed = all(
        abs(math.log(moves[at] / still) - exponents[at]) <= _SAME
        for at in exponents
        if exponents[at] > math.log(_LEAST_MOVED)
    )
    problem = "" if followed else "its code does not move places by the law it states"
    loss = max(itertools.starmap(per_km, pairs))
    yield _Found(loss, f"exponents of {len(exponents):,} displacements, and its code replayed", problem)


def _from_witnesses(setting: Setting) -> Iterator[_Found]:
    """Look at reports that were really drawn for the last value: how much less likely they are for the first input."""
    if not setting.witnesses:
        return
    channel, noise = setting.mechanism.channel(setting.tier), Noise()
    ends = (0, channel.num_inputs - 1)
    payloads = {setting.draw(setting.values[-1], noise) for _ in range(setting.witnesses)}
    symbols = [int.from_bytes(payload + b"\x01", "little") for payload in payloads]
    loss = _spread_over(channel, symbols, ends)
    yield _Found(loss, f"exact odds of {len(symbols):,} different reports that were really drawn")


def _from_box(setting: Setting) -> Iterator[_Found]:
    """Take the mechanism as a closed box, and bound its loss from below by draws of two values."""
    noise = Noise()
    draws = [
        [setting.view(setting.draw(value, noise)) for _ in range(setting.num_drawn)]
        for value in (setting.values[0], setting.values[-1])
    ]
    bound = lower_bound(*draws, confidence=_CONFIDENCE)
    yield _Found(
        bound.epsilon,
        f"at least {bound.epsilon:.3g} by {2 * setting.num_drawn:,} reports of a closed box",
        confidence=bound.confidence,
    )


def _claimed(setting: Setting, promise: Promise) -> tuple[float | str, float | str]:
    """Return what is claimed in the scope of a setting, and what the certificate says holds."""
    if len(setting.mechanism.levels) > 1:  # the promise is for the tier that gives away most
        level = next(level for level in setting.mechanism.levels if level.name == setting.tier)
        return float(level.epsilon), float(level.epsilon)
    held = promise.guarantee if promise.holds is None else promise.holds
    return _epsilon(promise.guarantee, setting.scope), _epsilon(held, setting.scope)


def _epsilon(guarantee: Any, scope: str) -> float | str:
    if isinstance(guarantee, WithinCluster) and scope != WITHIN:
        return UNBOUNDED
    return float(guarantee.epsilon)


def _sentence(
    setting: Setting, claimed: float | str, held: float | str, measured: float | str, problems: Sequence[str]
) -> str:
    """Say in one sentence what was found: the loss first, and then what is wrong besides."""
    each = " per kilometre" if setting.distance is not None else ""
    stated = "no bound" if isinstance(claimed, str) else f"epsilon {claimed:g}{each}"
    lost = "" if isinstance(measured, str) else f"One report gives away epsilon {measured:.4g}{each}"
    if isinstance(measured, str):
        said = "as is stated" if isinstance(claimed, str) else f"where {stated} is claimed"
        found = f"One report can tell {setting.scope} apart for certain, {said}"
    elif not within(measured, held, "epsilon"):
        found = f"{lost} between {setting.scope}, more than the epsilon {held:g}{each} that is stated"
    elif judged(measured, claimed, "epsilon") == FAILS:
        found = f"{lost} between {setting.scope}, where {stated} is claimed"
    else:
        found = f"{lost} at most between {setting.scope}; stated is {stated}"
    return f"{found}; but {', and '.join(problems)}." if problems else f"{found}."


# Numbers

_TIERS = (Tier(name="basic", epsilon=Fraction(2)), Tier(name="strict", epsilon=Fraction(1, 2)))


def _setting(kind: Any, variant: str, values: Sequence[Any], given: dict[str, Any]) -> Setting:
    """Make a setting; what it is given for itself and what for the mechanism is told apart by name."""
    own = {name: given.pop(name) for name in list(given) if name in Setting.__dataclass_fields__}
    if "tiers" not in given:
        given.setdefault("epsilon", 1)
    return Setting(mechanism=kind(**given), variant=variant, **{"values": values, **own})


def _quantities(num: int, steps: int, missing: str = "middle") -> tuple[Quantity, ...]:
    low, high = Fraction(-1), Fraction(1)
    return tuple(Quantity(name=f"number {at}", low=low, high=high, steps=steps, missing=missing) for at in range(num))


def _corners(num: int, *, more: Sequence[Any] = ()) -> list[Any]:
    first, *others = itertools.product((-1, 1), repeat=num)
    return [first, *more, *others]


def _numbers(variant: str, num: int, steps: int, missing: str = "middle", **given: Any) -> Setting:
    values = _corners(num, more=[(Fraction(3, 7),) * num, (None,) * num])
    given["quantities"] = _quantities(num, steps, missing)
    return _setting(LocalNumeric, variant, values, given)


def _points(steps: int) -> list[tuple[Fraction]]:
    return [(Fraction(at, steps),) for at in range(-steps, steps + 1)]


def _number_settings(long: bool) -> Iterator[Setting]:
    yield _numbers("method hybrid", 1, 2, values=[(-1,), (Fraction(1, 3),), (None,), *_points(2)])
    yield _numbers("method hybrid, 2 numbers", 2, 1, epsilon="0.5")
    yield _numbers("method hybrid, missing told", 1, 1, "symbol")
    yield _numbers("method piecewise, 2 numbers", 2, 1, method="piecewise")
    yield _numbers("method duchi", 1, 3, method="duchi")
    yield _numbers("method duchi, 2 numbers", 2, 1, method="duchi", values=_corners(2))
    yield _numbers("method duchi, 3 numbers", 3, 1, method="duchi", values=[(-1, -1, -1), (0, 1, 1), (1, 1, 1)])
    yield _numbers("method harmony, 3 numbers", 3, 1, method="harmony")
    yield _numbers("method laplace", 1, 2, epsilon=2, method="laplace")
    yield _numbers("method laplace, 2 numbers", 2, 1, method="laplace", values=_corners(2))
    yield _numbers("method square-wave, 2 of 3 numbers", 3, 1, epsilon=5, method="square-wave")
    yield _numbers("method warner, 2 numbers", 2, 1, method="warner", values=_corners(2))
    for tier in _TIERS:
        yield _numbers(f"tier {tier.name}", 1, 1, tiers=_TIERS, tier=tier.name)
    # Yield the published e-L_LDP for one number, of which it is true, and for several.
    name = "as published (e-L_LDP)"
    form: dict[str, Any] = {"as_published": True}
    yield _numbers(f"{name}, 1 number", 1, 1, **form)
    form["expected"] = FAILS
    yield _numbers(f"{name}, 2 numbers", 2, 1, values=[(-1, -1), (1, 1)], **form)
    for num, witnesses in ((3, 400), (5, 1_000))[: 2 if long else 1]:
        form |= {"values": [(-1,) * num, (1,) * num], "replays": False, "witnesses": witnesses}
        yield _numbers(f"{name}, {num} numbers", num, 1, **form)
    if long:
        for method, epsilon in itertools.product(("hybrid", "piecewise", "square-wave", "laplace"), ("0.25", "3")):
            given: dict[str, Any] = {"method": method, "epsilon": epsilon, "num_drawn": 20_000}
            yield _numbers(f"method {method}, epsilon {epsilon}, 9 points", 1, 4, values=_points(4), **given)
        yield _numbers("method duchi, 4 numbers", 4, 1, epsilon=2, method="duchi", values=[(-1,) * 4, (1,) * 4])
        yield _numbers("method hybrid, 2 of 3 numbers", 3, 1, epsilon=5, values=[(-1,) * 3, (1, 0, -1), (1,) * 3])


def check_numeric(long: bool) -> Iterator[Verdict]:
    """Check ``local-numeric``: every method, the published form, and a lifetime of reports."""
    for setting in _number_settings(long):
        yield examine(setting)
    # Check L-PM as its algorithm is printed: mostly noise, so that it gives away less than it says.
    started = time.perf_counter()
    law = LiteralPiecewise(epsilon=Fraction(1), steps=2)
    loss = _worst([replayed(partial(_symbol, law, at)) for at in range(law.num_inputs)])
    yield Verdict.of(
        LocalNumeric.name,
        "Algorithm 1 as printed (L-PM)",
        claimed=1.0,
        measured=loss if isinstance(loss, str) else round(loss, _DIGITS),
        method=f"its code replayed for {law.num_inputs} inputs, every decision all ways",
        sentence="As printed it gives away less than it claims, and tells numbers as about a quarter of what they are.",
        basis="claimed",
        started=started,
    )
    purpose = Purpose(
        name="numbers",
        mechanism=LocalNumeric.name,
        tiers=(Tier(name="all", epsilon=Fraction(1, 4)),),
        quantities=_quantities(2, 1),
        parameters={"as_published": True},
    )
    yield from examine_lifetime(purpose, (-1, 1), loss=2 * Fraction(1, 4))
    yield examine_window(replace(purpose, quantities=_quantities(1, 1), parameters={}), _points(1))


# Places and paths

_BOX = (Fraction("103.9"), Fraction("30.5"), Fraction("104.2"), Fraction("30.8"))
_SMALL, _AREAS = Grid(box=_BOX, levels=2), Grid(box=_BOX, levels=2, area_levels=2)
_MIDDLE = Grid(box=_BOX, levels=3, area_levels=2)
_AWAY = (0.0, 0.0)
_UNARY = ("symmetric-unary", "optimised-unary")
_HALF = (Tier(name="all", epsilon=Fraction(1, 2)),)


def _centres(grid: Grid) -> list[tuple[float, float]]:
    return [grid.centre(cell) for cell in range(grid.num_cells)]


def _places(variant: str, grid: Grid, **given: Any) -> Setting:
    return _setting(LocalLocation, variant, [*_centres(grid), _AWAY], {"grid": grid, **given})


def _unary(long: bool) -> dict[str, Any]:
    """Return how a unary encoding is looked at: its bits are too many to replay, but for few inputs."""
    return {"replays": False, "law_inputs": 3 if long else 2, "num_drawn": 40_000 if long else 6_000}


def _place_settings(long: bool) -> Iterator[Setting]:
    yield _places("method auto", _SMALL, epsilon=2)
    yield _places("method randomised-response", _SMALL, method="randomised-response")
    for method in _UNARY:
        yield _places(f"method {method}", _SMALL, method=method, **_unary(long))
    yield _places("method hadamard", _SMALL, method="hadamard")
    yield _places("method hadamard, epsilon 4", _SMALL, epsilon=4, method="hadamard")
    yield _planar(_SMALL, "0.1")
    for tier in _TIERS:
        yield _places(f"tier {tier.name}", _SMALL, tiers=_TIERS, tier=tier.name)
    inside = [_MIDDLE.centre(cell) for cell in range(_MIDDLE.num_inner)]
    both = [inside[0], _MIDDLE.centre(_MIDDLE.num_cells - 1)]
    yield _places("area in clear, within it", _MIDDLE, area_in_clear=True, values=inside, scope=WITHIN)
    yield _places("area in clear, across areas", _MIDDLE, area_in_clear=True, values=both, scope=ACROSS, expected=VOID)
    published: dict[str, Any] = {"as_published": True, "expected": FAILS}
    yield _places("as published (L-RR), one area", _SMALL, **published, **_unary(long))
    one = [_AREAS.centre(0), _AWAY]  # the first area has one place, and counts what is outside
    yield _places("as published (e-LT_LDP), within the area", _AREAS, values=one, scope=WITHIN, **published)
    published |= {"values": [_AREAS.centre(0), _AREAS.centre(3)], "replays": False}
    yield _places("as published (e-LT_LDP), across areas", _AREAS, scope=ACROSS, **published)
    if long:
        for method, epsilon in itertools.product(("randomised-response", "hadamard"), ("0.25", "1", "4")):
            given: dict[str, Any] = {"method": method, "epsilon": epsilon, "num_drawn": 20_000}
            yield _places(f"method {method}, epsilon {epsilon}, 16 places", _MIDDLE, **given)
        yield _planar(_MIDDLE, "0.2")


def _planar(grid: Grid, epsilon: str) -> Setting:
    width, height = (float(side) for side in grid.pitch_km)

    def distance(one: Any, other: Any) -> float:
        (x, y), (to_x, to_y) = (grid.column_row(grid.cell(*place)) for place in (one, other))
        return math.hypot((x - to_x) * width, (y - to_y) * height)

    rounds: dict[str, Any] = {"most_draws": 3, "distance": distance}  # columns, rows, and whether to keep them
    values = _centres(grid)
    name = f"method planar, {grid.num_cells} places, per km"
    return _places(name, grid, epsilon=epsilon, method="planar", values=values, **rounds)


def check_location(long: bool) -> Iterator[Verdict]:
    """Check ``local-location``: every method, areas in clear, the published form, and a lifetime of reports."""
    for setting in _place_settings(long):
        yield examine(setting)
    purpose = Purpose(name="places", mechanism=LocalLocation.name, tiers=_HALF, grid=_SMALL)
    yield from examine_lifetime(purpose, _SMALL.centre(0), loss=Fraction(1, 2))
    yield examine_window(purpose, _centres(_SMALL))


def _paths(variant: str, grid: Grid, steps: int = 2, **given: Any) -> Setting:
    values = [*itertools.product(_centres(grid), repeat=steps), None]
    return _setting(LocalTrajectory, variant, values, {"grid": grid, "steps": steps, **given})


def _path_settings(long: bool) -> Iterator[Setting]:
    yield _paths("method auto", _SMALL, epsilon=3)
    for method in ("randomised-response", "hadamard"):
        yield _paths(f"method {method}", _SMALL, method=method)
    for method in _UNARY:
        # Of 17 bits a closed box shows those of the two paths.
        ends = {"values": [_some(2)[0], _some(2)[-1]], "view": _two_bits, "few_inputs": 8, "law_inputs": 2}
        yield _paths(f"method {method}", _SMALL, method=method, **(_unary(long) | ends))
    few: dict[str, Any] = {"method": "randomised-response"}
    yield _paths("method randomised-response, 3 steps", _SMALL, 3, values=_some(3), **few)
    for tier in _TIERS:
        yield _paths(f"tier {tier.name}", _SMALL, tiers=_TIERS, tier=tier.name, values=_some(2), **few)
    inner = [_MIDDLE.centre(cell) for cell in range(_MIDDLE.num_inner)]
    inside = list(itertools.product(inner, repeat=2))
    across = [inside[0], [inner[0], _MIDDLE.centre(_MIDDLE.num_cells - 1)]]
    few["area_in_clear"] = True
    yield _paths("areas in clear, within them", _MIDDLE, values=inside, scope=WITHIN, **few)
    yield _paths("areas in clear, across areas", _MIDDLE, values=across, scope=ACROSS, expected=VOID, **few)
    for form, steps in itertools.product(("product", "qlp", "qjlp"), (2, 3)):
        yield from _published_paths(form, steps, long)


def _some(steps: int) -> list[Any]:
    places = _centres(_SMALL)
    return [[places[0]] * steps, [places[0], *places[2 : steps + 1]], None, [places[3]] * steps]


def _two_bits(payload: bytes) -> Hashable:
    bits = int.from_bytes(payload, "little")
    return bits & 1, bits >> _SMALL.num_cells**2 - 1 & 1


def _published_paths(form: str, steps: int, long: bool) -> Iterator[Setting]:
    """Yield a published form within one sequence of areas, and across areas; one place an area, and what is missing."""
    given: dict[str, Any] = {"as_published": True, "method": form, "expected": FAILS, "replays": False}
    given |= {"num_drawn": 20_000 if long else 2_500}
    first, last, missing = ([place] * steps for place in (_AREAS.centre(0), _AREAS.centre(3), _AWAY))
    name = f"as published ({form}), {steps} steps"
    # What is missing counts for the first area, and so for the first sequence of areas.
    law: dict[str, Any] = {"law_inputs": 2} if steps == 2 else {}
    yield _paths(f"{name}, within areas", _AREAS, steps, values=[first, missing], scope=WITHIN, **law, **given)
    if steps == 2:
        yield _paths(f"{name}, across areas", _AREAS, steps, values=[first, last], scope=ACROSS, **given)


def check_trajectory(long: bool) -> Iterator[Verdict]:
    """Check ``local-trajectory``: every method, areas in clear, the published forms, and a lifetime of reports."""
    for setting in _path_settings(long):
        yield examine(setting)
    purpose = Purpose(name="paths", mechanism=LocalTrajectory.name, tiers=_HALF, grid=_SMALL, steps=2)
    yield from examine_lifetime(purpose, [_SMALL.centre(0), _SMALL.centre(1)], loss=Fraction(1, 2))
    yield examine_window(replace(purpose, parameters={"method": "randomised-response"}), _some(2))


# A day and a lifetime of reports

_NUM_REPORTS, _PER_DAY, _NUM_DAYS = 5, 2, 5
_WINDOW = 3
_MIDNIGHT = 20_000 * SECONDS_PER_DAY
_SCHEDULE = Schedule(slots_per_day=_PER_DAY, slot_minutes=720, lateness_minutes=720)
Opening = Callable[..., Allowance]


def examine_lifetime(
    purpose: Purpose, value: Any, *, loss: Fraction, opening: Opening = Allowance.open
) -> Iterator[Verdict]:
    """Check that a vehicle falls silent when its allowance is used up, and gives away no more until then.

    Its device is switched off and on again between reports, is asked twice for each, and goes on asking when nothing is
    left. What the reports that came out give away together is then added up, for one purpose and for two at once.
    """
    for purposes, also in (((purpose,), ""), ((purpose, replace(purpose, name="more")), ", two purposes")):
        started = time.perf_counter()
        day, lifetime = len(purposes) * _PER_DAY * loss, _NUM_REPORTS * loss
        limits = Limits(day=day, lifetime=lifetime)
        task = Task(dataset="fleet", purposes=purposes, schedule=_SCHEDULE, limits=limits)
        by_slot = _reports_by_slot(task, value, opening)
        by_day = [sum(by_slot[at : at + _PER_DAY]) for at in range(0, len(by_slot), _PER_DAY)]
        for what, reports, limit in (("day", max(by_day), day), ("lifetime", sum(by_day), lifetime)):
            measured = float(reports * loss)
            ending = ", and then falls silent" if reports * loss <= limit else ": its allowance does not stop it"
            yield Verdict.of(
                purpose.mechanism,
                f"a {what} of reports{also}",
                claimed=float(limit),
                measured=measured,
                method=f"{reports} reports of epsilon {shown_number(loss)} each came out, of "
                f"{len(by_slot)} slots in {_NUM_DAYS} days, asked for twice, the device restarted in between",
                sentence=f"In a {what} a vehicle gives away epsilon {measured:g} of {float(limit):g} allowed{ending}.",
                started=started,
            )


def examine_window(purpose: Purpose, values: Sequence[Any]) -> Verdict:
    """Check that a window of consecutive slots gives away no more than what is stated for it."""
    started = time.perf_counter()
    schedule = replace(_SCHEDULE, window=_WINDOW)
    task = Task(dataset="fleet", purposes=(purpose,), schedule=schedule, limits=Limits(lifetime=Fraction(1000)))
    tier = purpose.tiers[0]
    one = Setting(mechanism=mechanism_of(task, purpose), variant="", values=values, tier=tier.name)
    loss = _worst([replayed(partial(one.draw, value)) for value in values])
    by_slot = _reports_by_slot(task, values[0], Allowance.open)
    reports = max(sum(by_slot[at : at + _WINDOW]) for at in range(len(by_slot)))
    measured = loss if isinstance(loss, str) else round(reports * loss, _DIGITS)
    return Verdict.of(
        purpose.mechanism,
        f"a window of {_WINDOW} slots",
        claimed=float(tier.epsilon),
        measured=measured,
        method=f"{reports} reports came out in a window, the code of one replayed for {len(values)} values",
        sentence=f"Any {_WINDOW} consecutive slots give away epsilon {measured}; stated is {float(tier.epsilon):g}.",
        started=started,
    )


def _reports_by_slot(task: Task, value: Any, opening: Opening) -> list[int]:
    """Count the different reports that a device hands out in each slot, whatever it is asked."""
    found: list[set[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vehicle"
        opening(path, task, enrol=True, now=_MIDNIGHT - SECONDS_PER_DAY, durable=False).close()
        for at in range(_NUM_DAYS * _PER_DAY):
            now = _MIDNIGHT + at * SECONDS_PER_DAY // _PER_DAY + 1
            asked = itertools.product(task.purposes, range(2))
            found.append(
                {report for purpose, _ in asked for report in _reports(task, purpose, value, now, path, opening)}
            )
    return [len(reports) for reports in found]


def _reports(task: Task, purpose: Purpose, value: Any, now: int, path: Path, opening: Opening) -> list[bytes]:
    """Switch a device on and ask it for a report: none if its allowance is used up, or no slot is due."""
    with opening(path, task, durable=False) as allowance:
        try:
            return [Client(task, allowance).report(purpose.name, value, now)]
        except AllowanceError:
            return []


CHECKS: Checks = {
    LocalNumeric: check_numeric,
    LocalLocation: check_location,
    LocalTrajectory: check_trajectory,
}
