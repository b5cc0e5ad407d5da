# SPDX-License-Identifier: Apache-2.0
"""What was claimed of a mechanism, what was found, and what the two say together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dunnage.errors import ParameterError

UNBOUNDED: Final = "unbounded"
HOLDS: Final = "holds"
FAILS: Final = "fails"
VOID: Final = "void"
NOISE: Final = "noise"
"""The name of the checks of noise itself: no mechanism of a policy, but part of every one."""
VERDICTS: Final = (HOLDS, FAILS, VOID)
QUANTITIES: Final = ("epsilon", "delta", "k")
BASES: Final = ("proved", "claimed", "void")

RELATIVE_SLACK: Final = 1e-9
"""How far a figure that was worked out in doubles may stray from the exact one, as a share of it."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One mechanism, or one variant or law of it, checked at one setting.

    Parameters
    ----------
    mechanism
        Its name in a policy.
    variant
        What sets this check apart: ``""``, ``"as published"``, ``"method piecewise"``.
    basis
        What its promise says of itself: ``proved``, ``claimed`` or ``void``.
    claimed
        What is claimed: an epsilon, a delta or a k, or :data:`UNBOUNDED`.
    holds
        What the certificate says is true instead, where it differs from the claim.
    measured
        The worst case that was found; :data:`UNBOUNDED` if there is no bound.
    quantity
        ``"epsilon"``, ``"delta"`` or ``"k"``.
    exact
        Whether every outcome was counted. Otherwise ``measured`` is a lower bound on the loss, from draws.
    confidence
        How sure a lower bound from draws is.
    method
        One phrase that says how it was found.
    verdict
        ``"holds"``, ``"fails"``, or ``"void"`` where nothing is claimed.
    expected
        The verdict that must come out.
    sentence
        One sentence for a person who decides.
    seconds
        How long it took.
    problems
        What else was found: draws that do not follow the law, a spend that is too small. There must be none.
    """

    mechanism: str
    variant: str
    basis: str
    claimed: float | str
    holds: float | str | None
    measured: float | str
    quantity: str
    exact: bool
    confidence: float | None
    method: str
    verdict: str
    expected: str
    sentence: str
    seconds: float
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, allowed in (("verdict", VERDICTS), ("expected", VERDICTS), ("quantity", QUANTITIES)):
            if getattr(self, name) not in allowed:
                raise ParameterError(f"{name} must be one of {', '.join(allowed)}. Got {getattr(self, name)!r}.")
        if self.basis not in BASES:
            raise ParameterError(f"basis must be one of {', '.join(BASES)}. Got {self.basis!r}.")
        for name in ("claimed", "holds", "measured"):
            if isinstance(figure := getattr(self, name), str) and figure != UNBOUNDED:
                raise ParameterError(f"{name} must be a number or {UNBOUNDED!r}. Got {figure!r}.")

    @property
    def within_promise(self) -> bool:
        """Whether what was found stays within what our own certificate states as true."""
        stated = self.claimed if self.holds is None else self.holds
        return within(self.measured, stated, self.quantity)

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that must come out and nothing exceeds what our certificate states."""
        return self.verdict == self.expected and self.within_promise and not self.problems

    def timed(self, seconds: float) -> Verdict:
        """Return the same verdict with the time that it took."""
        return replace(self, seconds=seconds)

    def to_dict(self) -> dict[str, Any]:
        """Give the verdict as plain data, the fixed names first."""
        first = ("mechanism", "basis", "claimed", "measured", "verdict")
        rest = ("variant", "holds", "quantity", "exact", "confidence", "method", "expected", "sentence", "seconds")
        told = {name: getattr(self, name) for name in (*first, *rest)}
        return {**told, "problems": list(self.problems), "as_expected": self.as_expected}


Check = Callable[[bool], Iterator[Verdict]]
"""A check of one mechanism: called with whether to take the long form, it yields verdicts as it reaches them."""
Checks = Mapping[str, Check]
"""The checks of a module, each under the name of its mechanism."""


def raised(mechanism: str, variant: str, error: Exception, seconds: float) -> Verdict:
    """Return the verdict on something that raised an error where it should have been examined: it fails."""
    text = " ".join(str(error).split())[:160]
    told = f"it raised {type(error).__name__}{': ' * bool(text)}{text}".rstrip(".")
    return Verdict(
        mechanism=mechanism,
        variant=variant,
        basis="claimed",
        claimed=0.0,
        holds=None,
        measured=UNBOUNDED,
        quantity="epsilon",
        exact=False,
        confidence=None,
        method="run as it is",
        verdict=FAILS,
        expected=HOLDS,
        sentence=f"{told[0].upper()}{told[1:]}. What it gives away was not found out.",
        seconds=seconds,
        problems=(told,),
    )


def within(measured: float | str, stated: float | str, quantity: str) -> bool:
    """Return whether a worst case stays within what is stated, up to the rounding of doubles.

    Examples
    --------
    >>> within(1.0, 1.0, "epsilon"), within(UNBOUNDED, 1.0, "epsilon"), within(4, 5, "k")
    (True, False, False)
    """
    if isinstance(stated, str):  # an unbounded loss is stated: nothing can exceed it
        return True
    if isinstance(measured, str):
        return False
    slack = RELATIVE_SLACK * max(1.0, abs(stated))
    return measured >= stated - slack if quantity == "k" else measured <= stated + slack


def judged(measured: float | str, claimed: float | str, quantity: str) -> str:
    """Return the verdict on a claim: ``"void"`` where nothing is claimed, else whether it holds."""
    if isinstance(claimed, str):
        return VOID
    return HOLDS if within(measured, claimed, quantity) else FAILS
