# SPDX-License-Identifier: Apache-2.0
"""Run a mechanism over and over, each time with other random decisions, until every possible run has been seen.

A mechanism draws from the :class:`~dunnage.noise.Noise` that it receives, by a few exact laws. :class:`Decisions` is a
noise that draws nothing: for each number it takes the next entry of a script, and keeps how likely that was. All
scripts together give every output that the code can make, with its probability, without trusting anything that the
mechanism says about itself.

Two laws never end. Their tails are either taken together, as one number far away, which is exact where the release is
clamped to a public range (``beyond="together"``); or left out, and their chance is kept (``beyond="left out"``).

What the code does without the noise that it received counts as certain, so a mechanism that draws elsewhere, or not at
all, shows as one that hides nothing.

On devices, a uniform number stays undecided until the code looks at it, and then only as far as it looks, so comparing
64 random digits with a threshold is one decision of two ways (:class:`Undecided`). Loops that refuse a draw never end:
paths that are too unlikely are left out, and their chance is kept.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import permutations
from typing import Any, Final, Literal

import numpy as np

from dunnage.noise import arrays as noise_arrays
from dunnage.noise.priorities import priorities
from dunnage.noise.source import Noise
from dunnage.proving.verdict import UNBOUNDED

FAR: Final = 1 << 20  # the number that stands for everything beyond the reach
MAX_RUNS: Final = 400_000
_MAX_BELOW, _MAX_ORDERED = 4096, 5


class NotEnumerable(Exception):
    """The mechanism draws from a law with too many outcomes to try them all."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    steps: int  # how far on either side
    # "together": everything beyond is one outcome, far away; "left out": it is ignored; "extremes": only the first and
    # the last outcome of every law are tried, and their chances mean nothing.
    beyond: Literal["together", "left out", "extremes"] = "together"
    orders: bool = False  # whether every order of shuffled rows is tried; otherwise the caller must sort rows
    tail: float = 0.0  # if above 0, each law is followed until about this chance is left, instead of by steps

    def steps_of(self, scale: float) -> int:
        return math.ceil(-scale * math.log(self.tail)) if self.tail else self.steps


class Decisions(Noise):
    """Noise that follows a script, and notes how likely each decision was and how many alternatives there were."""

    __slots__ = ("_reach", "_script", "_trace", "chance", "complete")

    def __init__(self, script: Sequence[int], reach: Reach) -> None:
        super().__init__()
        self._script, self._reach = script, reach
        self._trace: list[tuple[int, int]] = []  # decision : which outcome, of how many
        self.chance = 1.0
        self.complete = True

    def _take(self, values: Sequence[Any], chances: Sequence[float]) -> Any:
        if self._reach.beyond == "extremes" and len(values) > 2:
            values, chances = (values[0], values[-1]), (chances[0], chances[-1])
        at = len(self._trace)
        choice = self._script[at] if at < len(self._script) else 0
        self._trace.append((choice, len(values)))
        self.chance *= chances[choice]
        return values[choice]

    @property
    def num_decisions(self) -> int:
        return len(self._trace)

    def following(self) -> list[int] | None:
        trace = list(self._trace)
        while trace and trace[-1][0] + 1 == trace[-1][1]:
            trace.pop()
        if not trace:
            return None
        return [*(choice for choice, _ in trace[:-1]), trace[-1][0] + 1]

    def draw_bytes(self, n: int) -> bytes:
        """Return bytes for salts and keys, which no release contains: always the same."""
        key = _Key(n)
        key.decisions = self
        return key

    def bits(self, n: int) -> int:
        """Refuse: bare bits say nothing about the law they serve."""
        raise NotEnumerable

    def below(self, n: int) -> int:
        if self._reach.beyond == "extremes":
            return int(self._take((0, n - 1), (1.0, 1.0))) if n > 1 else 0
        if n > _MAX_BELOW:
            raise NotEnumerable
        return int(self._take(range(n), [1 / n] * n)) if n > 1 else 0

    def _yes(self, chance: float) -> bool:
        return bool(self._take((True, False), (chance, 1 - chance))) if 0 < chance < 1 else chance >= 1

    def bernoulli(self, p: int | Fraction) -> bool:
        return self._yes(float(p))

    def bernoulli_exp(self, x: int | Fraction) -> bool:
        return self._yes(math.exp(-x))

    def bernoulli_logistic(self, x: int | Fraction) -> bool:
        return self._yes(1 / (1 + math.exp(-x)))

    def bernoulli_odds(self, yes: int, no: int, x: int | Fraction) -> bool:
        return self._yes(yes / (yes + no * math.exp(-x)))

    def geometric(self, scale: int | Fraction) -> int:
        step, reach = 1 / float(scale), self._reach.steps_of(float(scale))
        return self._endless(range(reach + 1), step, -math.expm1(-step), math.exp(-step * (reach + 1)))

    def discrete_laplace(self, scale: int | Fraction) -> int:
        step, reach = 1 / float(scale), self._reach.steps_of(float(scale))
        tail = math.exp(-step * (reach + 1)) / (1 + math.exp(-step))
        return self._endless(range(-reach, reach + 1), step, math.tanh(step / 2), tail)

    def discrete_gaussian(self, variance: int | Fraction) -> int:
        reach = self._reach.steps_of(math.sqrt(variance))
        masses = {value: math.exp(-(value**2) / (2 * float(variance))) for value in range(-reach - 40, reach + 41)}
        self.complete = False
        values = range(-reach, reach + 1)
        return int(self._take(values, [masses[value] / sum(masses.values()) for value in values]))

    def _endless(self, values: Sequence[int], step: float, weight: float, tail: float) -> int:
        """Take a value of a law that falls off exponentially; its tails are taken together, or left out."""
        chances = [weight * math.exp(-step * abs(value)) for value in values]
        if self._reach.beyond == "together":
            below = [-FAR] if values[0] < 0 else []
            return int(self._take([*below, *values, FAR], [*(tail for _ in below), *chances, tail]))
        self.complete = False
        return int(self._take(values, chances))

    def exponential_choice(self, scores: Sequence[int | Fraction]) -> int:
        numbers = [float(score) for score in scores]
        weights = [math.exp(number - max(numbers)) for number in numbers]
        total = math.fsum(weights)
        return int(self._take(range(len(weights)), [weight / total for weight in weights])) if len(weights) > 1 else 0

    def permutation(self, n: int) -> list[int]:
        """Decide on an order, or keep the one there is, as the reach says."""
        if not self._reach.orders or n < 2:
            return list(range(n))
        if n > _MAX_ORDERED:
            raise NotEnumerable
        orders = list(permutations(range(n)))
        return list(self._take(orders, [1 / len(orders)] * len(orders)))


class _Key(bytes):
    """A key that knows whose decisions it stands for."""

    decisions: Decisions


def _ordered(priorities: Callable[..., Any], key: bytes, rows: Any, choice: int) -> Any:
    """Stand in for keyed priorities: under a random key every order is equally likely, as certificates assume."""
    if not isinstance(key, _Key):
        return priorities(key, rows, choice)
    ranks = np.empty((len(rows), 2), dtype=np.int64)
    ranks[key.decisions.permutation(len(rows)), 0] = np.arange(len(rows))
    ranks[:, 1] = 0
    return ranks


_NUMBERS = ("below", "geometric", "discrete_laplace", "discrete_gaussian", "exponential_choice")
_COINS = ("bernoulli", "bernoulli_exp", "bernoulli_logistic", "bernoulli_odds")
_OTHERS = ("below_each", "permutation", "tail_counts", "binomial_exp", "binomial", "packed_bits")


def _stand_in(name: str, draw: Callable[..., Any], noise: Noise, *given: Any) -> Any:
    """Stand in for a function of :mod:`dunnage.noise.arrays`: one decision for each number of the array."""
    if not isinstance(noise, Decisions):
        return draw(noise, *given)
    if name in (*_NUMBERS, *_COINS):
        *parameters, size = given
        one = getattr(noise, name)
        return np.array([one(*parameters) for _ in range(size)], dtype=np.int64 if name in _NUMBERS else np.bool_)
    if name == "permutation":
        return np.array(noise.permutation(*given), dtype=np.int64)
    if name == "below_each":
        return np.array([noise.below(int(limit)) for limit in given[0]], dtype=np.int64)
    raise NotEnumerable


@contextlib.contextmanager
def with_values(places: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Give names of modules other values for a while."""
    before = [(module, name, getattr(module, name), value) for module, name, value in places]
    try:
        for module, name, _, value in before:
            setattr(module, name, value)
        yield
    finally:
        for module, name, own, _ in before:
            setattr(module, name, own)


def diverted() -> contextlib.AbstractContextManager[None]:
    """Turn array draws from :class:`Decisions` into decisions too; draws from any other noise stay as they are."""
    draws = {name: getattr(noise_arrays, name) for name in (*_NUMBERS, *_COINS, *_OTHERS)}
    stand_ins = {id(draw): partial(_stand_in, name, draw) for name, draw in draws.items()}
    stand_ins[id(priorities)] = partial(_ordered, priorities)
    # Some modules have a function under a name of their own.
    return with_values(
        (module, name, stand_ins[id(value)])
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("dunnage")
        for name, value in list(vars(module).items())
        if id(value) in stand_ins
    )


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    chances: Mapping[Hashable, float]  # probability of each output
    missed: float  # probability of everything that was not followed; 0 if all was
    runs: int

    def __len__(self) -> int:
        return len(self.chances)


def outcomes(run: Callable[[Decisions], Hashable], reach: Reach, *, most: int = MAX_RUNS) -> Outcomes:
    """Return every output of a function, with its probability, by taking every decision all ways."""
    return _all_ways(run, lambda script: Decisions(script, reach), most)


def replay_draws(draw: Callable[[Noise], Hashable], *, most_draws: int | None = None) -> Outcomes:
    """Return the law of what a device draws; a round of more than ``most_draws`` was refused, and is left out."""
    return _all_ways(draw, lambda script: Undecided(script, most_draws), None)


def _all_ways(
    run: Callable[[Any], Hashable], noise_of: Callable[[Sequence[int]], Decisions], most: int | None
) -> Outcomes:
    parts: dict[Hashable, list[float]] = defaultdict(list)
    refused, runs, complete = [0.0], 0, True
    script: list[int] | None = []
    while script is not None:
        noise = noise_of(script)
        try:
            output = run(noise)
            parts[output].append(noise.chance)
        except _Restarted:
            refused.append(noise.chance)
        except _TooUnlikely:
            complete = False
        complete, runs, script = complete and noise.complete, runs + 1, noise.following()
        if most is not None and runs > most:
            raise NotEnumerable
    kept = 1 - math.fsum(refused)
    chances = {output: math.fsum(chance) / kept for output, chance in parts.items()}
    missed = 0.0 if complete else max(0.0, 1 - math.fsum(chances.values())) + 1e-15
    return Outcomes(chances=chances, missed=missed, runs=runs)


# Numbers that are decided only as far as the code looks at them
CUT = 1e-13  # A path of decisions less likely than this is not followed; its chance is kept
MAX_LISTED = 1 << 12  # largest uniform draw with values that are listed; for a larger one only comparisons are followed
_SURELY = 1e6  # an output this much likelier than everything not followed is impossible where it does not occur


class _TooUnlikely(Exception):
    """The path is not worth following."""


class _Restarted(Exception):
    """A round was refused, and the next begins as if nothing had happened."""


class Undecided(Decisions):
    """Decisions of a device: a uniform number is decided only as far as the code looks at it."""

    # A loop that draws until something holds is one path for each round, followed until it is too unlikely.
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
        # For the code that draws, this is a whole number like any other.
        return _OpenNumber(self, [range(n)], int) if n <= MAX_LISTED else _Word(self, n)  # type: ignore[return-value]

    def _yes(self, chance: float) -> bool:
        self._count()
        return super()._yes(chance)

    def discrete_laplace(self, scale: int | Fraction) -> int:
        self._count()
        step = 1 / float(scale)
        far = math.ceil(-math.log(CUT) / step)
        values = range(-far, far + 1)
        return int(self._take(values, [math.tanh(step / 2) * math.exp(-step * abs(value)) for value in values]))


class _OpenNumber:
    """A uniform number, or a function of one, that is not decided yet."""

    __slots__ = ("_left", "_noise", "_value")

    def __init__(self, noise: Undecided, left: list[Sequence[int]], value: Callable[[int], Any]) -> None:
        # The values that are still possible are shared: a decision on one function of the number holds for all.
        self._noise, self._left, self._value = noise, left, value

    def joined(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        mine = self._value
        if isinstance(other, int):
            return _OpenNumber(self._noise, self._left, lambda at: function(mine(at), other))
        if isinstance(other, _OpenNumber) and other._left is self._left:
            its = other._value
            return _OpenNumber(self._noise, self._left, lambda at: function(mine(at), its(at)))
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


def _operators(way: Callable[[_OpenNumber, Any, Callable[[Any, Any], Any]], Any], *names: str) -> None:
    """Give undecided numbers some operators, and these with their sides exchanged, one and all in one way."""
    for name in names:
        function = getattr(operator, name)
        setattr(_OpenNumber, f"__{name.rstrip('_')}__", lambda a, b, function=function: way(a, b, function))
        swapped = partial(lambda function, a, b: function(b, a), function)
        setattr(_OpenNumber, f"__r{name.rstrip('_')}__", lambda a, b, function=swapped: way(a, b, function))


_operators(_OpenNumber.joined, "mul", "and_", "or_", "xor", "lshift", "rshift")
# A sum is used, so it may as well be decided.
_operators(lambda number, other, function: function(int(number), other), "add", "sub", "floordiv", "mod")
# Comparing decides this and no more.
_operators(lambda number, other, function: bool(number.joined(other, function)), "lt", "le", "gt", "ge", "ne")


class _Word:
    """A uniform number out of very many; the code may only test whether it is below or equal to another."""

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
        is_inside = bool(self._noise.decide(((num - yes) / num, yes / num))) if 0 < yes < num else yes == num
        pieces: list[range] = []
        for part, piece in zip(self._left, inside, strict=True):
            pieces += [piece] if is_inside else [range(part.start, piece.start), range(piece.stop, part.stop)]
        self._left = [piece for piece in pieces if piece.start < piece.stop]
        return is_inside


def _size(parts: Sequence[range]) -> int:
    return sum(part.stop - part.start for part in parts)  # len fails for a part of 2^64


# How far apart the outputs of two neighbouring datasets are
Kept = Callable[[Hashable], bool]


def epsilon_between(one: Outcomes, other: Outcomes, kept: Kept | None = None) -> float | str:
    """Return the largest logarithm of the ratio of an output's chances, either way."""
    worst = 0.0  # what was not followed counts for the side that makes the ratio smaller: nothing is overstated
    for here, there in ((one, other), (other, one)):
        for output, chance in here.chances.items():
            if chance > 0 and (kept is None or kept(output)):
                against = there.chances.get(output, 0.0) + there.missed
                worst = max(worst, math.log(chance / against) if against else math.inf)
    return UNBOUNDED if math.isinf(worst) else worst


def delta_between(one: Outcomes, other: Outcomes, epsilon: float) -> float:
    """Return the largest P(S) - e^epsilon P'(S) over all sets S of outputs, either way."""
    growth = math.exp(epsilon)
    return max(
        math.fsum(
            max(0.0, chance - growth * (b.chances.get(output, 0.0) + b.missed)) for output, chance in a.chances.items()
        )
        for a, b in ((one, other), (other, one))
    )


def loss_between(one: Outcomes, other: Outcomes) -> float | str:
    """Return the worst loss between two inputs; unbounded if an output of one is certainly impossible for the other."""
    for here, there in ((one, other), (other, one)):
        if any(chance > _SURELY * there.missed and not there.chances.get(y) for y, chance in here.chances.items()):
            return UNBOUNDED
    return epsilon_between(one, other)


def largest(losses: Iterable[float | str]) -> float | str:
    every = list(losses)
    return UNBOUNDED if UNBOUNDED in every else max((float(loss) for loss in every), default=0.0)
