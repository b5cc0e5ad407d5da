# SPDX-License-Identifier: Apache-2.0
"""What was claimed of a mechanism, what was found, and what the two say together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from pydantic import computed_field, model_validator

from dunnage.errors import ParameterError
from dunnage.model.documents import Listed, Model
from dunnage.model.guarantees import Basis

UNBOUNDED: Final = "unbounded"
HOLDS: Final = "holds"
FAILS: Final = "fails"
VOID: Final = "void"
NOISE: Final = "noise"
"""The name of the checks of noise itself: no mechanism of a policy, but part of every one."""
VERDICTS: Final = (HOLDS, FAILS, VOID)
QUANTITIES: Final = ("epsilon", "delta", "k")

RELATIVE_SLACK: Final = 1e-9
"""How far a figure that was worked out in doubles may stray from the exact one, as a share of it."""


class Verdict(Model):
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
    basis: str
    claimed: float | str
    measured: float | str
    verdict: str
    variant: str
    holds: float | str | None
    quantity: str
    exact: bool
    confidence: float | None
    method: str
    expected: str
    sentence: str
    seconds: float
    problems: Listed[str] = ()

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, content: Any) -> Any:
        """Leave out what a file says follows from the rest: it is worked out anew."""
        return {k: v for k, v in content.items() if k != "as_expected"} if isinstance(content, dict) else content

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, allowed in (
            ("verdict", VERDICTS),
            ("expected", VERDICTS),
            ("quantity", QUANTITIES),
            ("basis", tuple(Basis)),
        ):
            if getattr(self, name) not in allowed:
                raise ParameterError(f"{name} must be one of {', '.join(allowed)}. Got {getattr(self, name)!r}.")
        for name in ("claimed", "holds", "measured"):
            if isinstance(figure := getattr(self, name), str) and figure != UNBOUNDED:
                raise ParameterError(f"{name} must be a number or {UNBOUNDED!r}. Got {figure!r}.")
        return self

    @classmethod
    def of(
        cls,
        mechanism: str,
        variant: str,
        claimed: float | str,
        measured: float | str,
        *,
        method: str,
        sentence: str,
        basis: str = "proved",
        holds: float | str | None = None,
        quantity: str = "epsilon",
        expected: str = HOLDS,
        confidence: float | None = None,
        exact: bool | None = None,
        problems: Sequence[str] = (),
    ) -> Verdict:
        """Compare what was measured with what is claimed; what would hold fails, too, if there are problems.

        What has a confidence is a bound from draws, and all else exact. How long it took the desk notes.
        """
        verdict = judge(measured, claimed, quantity)
        return cls(
            mechanism=mechanism,
            variant=variant,
            basis=str(basis),
            claimed=claimed,
            holds=holds,
            measured=measured,
            quantity=quantity,
            exact=confidence is None if exact is None else exact,
            confidence=confidence,
            method=method,
            verdict=FAILS if problems and verdict == HOLDS else verdict,
            expected=expected,
            sentence=sentence,
            seconds=0.0,
            problems=tuple(problems),
        )

    @property
    def within_promise(self) -> bool:
        """Whether what was found stays within what our own certificate states as true."""
        stated = self.claimed if self.holds is None else self.holds
        return within(self.measured, stated, self.quantity)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one that must come out and nothing exceeds what our certificate states."""
        return self.verdict == self.expected and self.within_promise and not self.problems

    def to_dict(self) -> dict[str, object]:
        """Give the verdict as plain data, the fixed names first."""
        return self.model_dump(mode="json")


Check = Callable[[bool], Iterator[Verdict]]
"""A check of one mechanism: called with whether to take the long form, it yields verdicts as it reaches them."""
Checks = Mapping[type[Any], Check]
"""The checks of a module, by the class of their mechanism."""


def verdict_on_error(mechanism: str, variant: str, error: Exception) -> Verdict:
    """Return the verdict on something that raised an error where it should have been examined: it fails."""
    text = " ".join(str(error).split())[:160]
    problem = f"it raised {type(error).__name__}{': ' * bool(text)}{text}".rstrip(".")
    return Verdict.of(
        mechanism,
        variant,
        0.0,
        UNBOUNDED,
        basis="claimed",
        exact=False,
        method="run as it is",
        sentence=f"{as_sentence(problem)} What it gives away was not found out.",
        problems=(problem,),
    )


def as_sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def within(measured: float | str, stated: float | str, quantity: str) -> bool:
    """Return whether a worst case stays within what is stated, up to the rounding of doubles."""
    if isinstance(stated, str):  # an unbounded loss is stated: nothing can exceed it
        return True
    if isinstance(measured, str):
        return False
    slack = RELATIVE_SLACK * max(1.0, abs(stated))
    return measured >= stated - slack if quantity == "k" else measured <= stated + slack


def judge(measured: float | str, claimed: float | str, quantity: str) -> str:
    """Return the verdict on a claim: ``"void"`` where nothing is claimed, else whether it holds."""
    if isinstance(claimed, str):
        return VOID
    return HOLDS if within(measured, claimed, quantity) else FAILS
