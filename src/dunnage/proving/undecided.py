# SPDX-License-Identifier: Apache-2.0
"""Replaying what a device draws: every decision all ways, where loops that refuse a draw never end.

A uniform number stays undecided until the code looks at it, and then only as far as it looks, so that comparing 64
random digits with a threshold is one decision of two ways. Paths that are too unlikely are left out, and with what
chance is kept.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dunnage.noise import Noise
from dunnage.proving.losses import epsilon_between
from dunnage.proving.replay import Decisions, NotEnumerable, Outcomes, Reach
from dunnage.proving.verdict import UNBOUNDED

CUT = 1e-13
"""A path of decisions less likely than this is not followed; with what chance is kept."""
MOST_LISTED = 1 << 12
"""Largest uniform draw whose values are listed; of a larger one only comparisons are followed."""
_SURELY = 1e6  # an output so much likelier than all that was not followed is impossible where it was not met


# Replaying: loops that refuse a draw never end, so numbers stay undecided until the code looks at them


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
        """Decide on one of several outcomes, by their number."""
        return int(self._take(range(len(chances)), chances))

    def _count(self) -> None:
        if self._draws_left is not None:
            if not self._draws_left:
                raise _Restarted
            self._draws_left -= 1

    def bits(self, n: int) -> int:
        """Draw a uniform integer from 0 to ``2**n - 1``."""
        return self.below(1 << n)

    def below(self, n: int) -> int:
        """Draw a uniform integer from 0 to ``n - 1``."""
        self._count()
        # To the code that draws it is a whole number like any other.
        return _Drawn(self, [range(n)], int) if n <= MOST_LISTED else _Word(self, n)  # type: ignore[return-value]

    def _yes(self, chance: float) -> bool:
        self._count()
        return super()._yes(chance)

    def discrete_laplace(self, scale: int | Fraction) -> int:
        """Decide on a number of the discrete Laplace law, as far out as a path is worth following."""
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
        """Return a function of this number and another."""
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
    """Find the law of what a function draws, by taking every decision all ways.

    Examples
    --------
    >>> law = replayed(lambda noise: int(noise.below(3) + noise.bernoulli(Fraction(1, 2))))
    >>> [round(law.chances[output] * 6) for output in range(4)]
    [1, 2, 2, 1]
    """
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
