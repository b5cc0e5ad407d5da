# SPDX-License-Identifier: Apache-2.0
"""Run a mechanism over and over, each time with other decisions of chance, until every way it can go has been seen.

A mechanism draws from the :class:`~dunnage.noise.Noise` that it is handed, by a few exact laws. :class:`Decisions` is a
noise that draws nothing: asked for a number, it takes the next of a script, and keeps how likely that was. Going
through all scripts gives every output that the code can make, and its probability, without trusting a word of what the
mechanism says about itself.

Two laws never end. Their tails are either taken together, as one number far away, which is exact where what is released
is clamped to a public range (``beyond="together"``); or left out, and with what chance is kept (``beyond="left out"``).

What the code does without asking the noise it was handed is taken as certain, so that a mechanism that draws elsewhere,
or not at all, shows as one that hides nothing.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, permutations
from typing import Any, ClassVar, Final

import numpy as np

from dunnage import noise_arrays
from dunnage.errors import ParameterError
from dunnage.noise import Noise
from dunnage.proving.verdict import UNBOUNDED

FAR: Final = 1 << 20
"""The number that stands for all beyond the reach."""
MOST_RUNS: Final = 400_000
_MOST_BELOW = 4096
_MOST_ORDERED = 5
_BEYOND = ("together", "left out", "extremes")


class NotEnumerable(Exception):
    """The mechanism draws from a law that is too large to try every outcome of."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    steps: int  # How far on either side
    # `"together"`: what is beyond is one outcome, far away; `"left out"`: it is not looked at; `"extremes"`: only the
    # first and the last outcome of every law are tried, and their chances mean nothing
    beyond: str = "together"
    # Whether every order of shuffled rows is tried. Otherwise rows keep theirs, and whoever compares must sort them
    orders: bool = False
    tail: float = 0.0  # If above 0, each law is followed until about this chance is beyond, instead of so many steps

    def __post_init__(self) -> None:
        if self.beyond not in _BEYOND:
            raise ParameterError(f"beyond must be one of {', '.join(_BEYOND)}. Got {self.beyond!r}.")
        if self.steps < 1:
            raise ParameterError(f"steps must be 1 or more. Got {self.steps}.")
        if not 0 <= self.tail < 1:
            raise ParameterError(f"tail must be 0 or a chance below 1. Got {self.tail}.")

    def steps_of(self, scale: float) -> int:
        return math.ceil(-scale * math.log(self.tail)) if self.tail else self.steps


class Decisions(Noise):
    """Noise that follows a script, and notes how likely each decision was and how many others there were."""

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
        """Return bytes for salts and keys, which no release holds: always the same."""
        return bytes(n)

    def bits(self, n: int) -> int:
        """Refuse: bare bits say nothing of the law they are drawn for."""
        raise NotEnumerable

    def below(self, n: int) -> int:
        if self._reach.beyond == "extremes":
            return int(self._take((0, n - 1), (1.0, 1.0))) if n > 1 else 0
        if n > _MOST_BELOW:
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
        inner = [-math.expm1(-step) * math.exp(-step * i) for i in range(reach + 1)]
        values = list(range(reach + 1))
        if self._reach.beyond == "together":
            return int(self._take([*values, FAR], [*inner, math.exp(-step * (reach + 1))]))
        self.complete = False
        return int(self._take(values, inner))

    def discrete_laplace(self, scale: int | Fraction) -> int:
        step, reach = 1 / float(scale), self._reach.steps_of(float(scale))
        values = list(range(-reach, reach + 1))
        inner = [math.tanh(step / 2) * math.exp(-step * abs(i)) for i in values]
        if self._reach.beyond == "together":
            tail = math.exp(-step * (reach + 1)) / (1 + math.exp(-step))
            return int(self._take([-FAR, *values, FAR], [tail, *inner, tail]))
        self.complete = False
        return int(self._take(values, inner))

    def exponential_choice(self, scores: Sequence[int | Fraction]) -> int:
        numbers = [float(score) for score in scores]
        weights = [math.exp(number - max(numbers)) for number in numbers]
        total = math.fsum(weights)
        return int(self._take(range(len(weights)), [weight / total for weight in weights])) if len(weights) > 1 else 0

    def permutation(self, n: int) -> list[int]:
        """Decide on an order, or keep the one there is, as the reach says."""
        if not self._reach.orders or n < 2:
            return list(range(n))
        if n > _MOST_ORDERED:
            raise NotEnumerable
        orders = list(permutations(range(n)))
        return list(self._take(orders, [1 / len(orders)] * len(orders)))


class _Diverted:
    """The functions of :mod:`dunnage.noise_arrays`, for decisions: one decision for each number of the array."""

    single: ClassVar[Mapping[str, type]] = {
        "below": int,
        "bernoulli": bool,
        "bernoulli_exp": bool,
        "bernoulli_logistic": bool,
        "bernoulli_odds": bool,
        "geometric": int,
        "discrete_laplace": int,
        "exponential_choice": int,
    }
    whole = ("below_each", "permutation", "tail_counts", "binomial_exp", "binomial", "packed_bits")

    @staticmethod
    def drawn(name: str, noise: Decisions, *given: Any) -> Any:
        """Take the decisions that one call stands for."""
        if name in _Diverted.single:
            *parameters, size = given
            draw, kind = getattr(noise, name), _Diverted.single[name]
            return np.array([draw(*parameters) for _ in range(size)], dtype=np.int64 if kind is int else np.bool_)
        if name == "permutation":
            return np.array(noise.permutation(*given), dtype=np.int64)
        if name == "below_each":
            return np.array([noise.below(int(limit)) for limit in given[0]], dtype=np.int64)
        raise NotEnumerable


@contextlib.contextmanager
def diverted() -> Iterator[None]:
    """Let array draws from :class:`Decisions` be decisions too; draws from any other noise stay what they are."""
    originals = {name: getattr(noise_arrays, name) for name in (*_Diverted.single, *_Diverted.whole)}
    stand_ins = {id(draw): _stand_in(name, draw) for name, draw in originals.items()}
    # Some modules hold a function under a name of their own.
    places = [
        (module, name, value)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("dunnage")
        for name, value in list(vars(module).items())
        if id(value) in stand_ins
    ]
    try:
        for module, name, value in places:
            setattr(module, name, stand_ins[id(value)])
        yield
    finally:
        for module, name, value in places:
            setattr(module, name, value)


def _stand_in(name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
    def either(noise: Noise, *given: Any) -> Any:
        return _Diverted.drawn(name, noise, *given) if isinstance(noise, Decisions) else draw(noise, *given)

    return either


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    chances: Mapping[Hashable, float]  # Probability of each output
    missed: float  # Probability of all that was not looked at; 0 if all was
    runs: int  # How many runs it took

    def __len__(self) -> int:
        return len(self.chances)


def outcomes(run: Callable[[Decisions], Hashable], reach: Reach, *, most: int = MOST_RUNS) -> Outcomes:
    found: dict[Hashable, list[float]] = defaultdict(list)
    runs, complete = 0, True
    for noise, output in islice(_runs(run, reach), most + 1):
        found[output].append(noise.chance)
        complete = complete and noise.complete
        runs += 1
    if runs > most:
        raise NotEnumerable
    chances = {output: math.fsum(parts) for output, parts in found.items()}
    missed = 0.0 if complete else max(0.0, 1 - math.fsum(chances.values())) + 1e-15
    return Outcomes(chances=chances, missed=missed, runs=runs)


def _runs(run: Callable[[Decisions], Hashable], reach: Reach) -> Iterator[tuple[Decisions, Hashable]]:
    script: list[int] | None = []
    while script is not None:
        noise = Decisions(script, reach)
        yield noise, run(noise)
        script = noise.following()


# How far apart the outputs of two neighbouring datasets are

Kept = Callable[[Hashable], bool]


def epsilon_between(one: Outcomes, other: Outcomes, kept: Kept | None = None) -> float | str:
    """Return the largest logarithm of the ratio of an output's chances, either way.

    What was not looked at is counted for the side that makes the ratio smaller, so that nothing is overstated.
    """
    found = [_one_way(*pair, kept) for pair in ((one, other), (other, one))]
    return UNBOUNDED if math.inf in found else max(found)


def _one_way(one: Outcomes, other: Outcomes, kept: Kept | None) -> float:
    worst = 0.0
    for output, chance in one.chances.items():
        if chance > 0 and (kept is None or kept(output)):
            against = other.chances.get(output, 0.0) + other.missed
            worst = max(worst, math.log(chance / against) if against else math.inf)
    return worst


def delta_between(one: Outcomes, other: Outcomes, epsilon: float) -> float:
    """Return the largest P(S) - e^epsilon P'(S) over all sets S of outputs, either way."""
    growth = math.exp(epsilon)
    return max(
        math.fsum(
            max(0.0, chance - growth * (b.chances.get(output, 0.0) + b.missed)) for output, chance in a.chances.items()
        )
        for a, b in ((one, other), (other, one))
    )


def largest(found: Iterable[float | str]) -> float | str:
    losses = list(found)
    return UNBOUNDED if UNBOUNDED in losses else max((float(loss) for loss in losses), default=0.0)
