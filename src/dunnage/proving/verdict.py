# SPDX-License-Identifier: Apache-2.0
"""prove: what a mechanism claims, what it really reveals, and the verdict on both.

A mechanism brings a check: a function that yields :class:`Verdict` values, in the ``CHECKS`` of one of the modules of
this package, by its class. A mechanism without one gets the examination that fits all of its kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self

from pydantic import computed_field, model_validator

from dunnage.errors import CheckFailed, ParameterError
from dunnage.mechanisms import MECHANISMS
from dunnage.model.documents import Listed, Model
from dunnage.model.guarantees import Basis
from dunnage.processes import in_parallel
from dunnage.text import Progress

UNBOUNDED: Final = "unbounded"
FIGURES: Final = frozenset(("claimed", "holds", "measured"))
HOLDS: Final = "holds"
FAILS: Final = "fails"
VOID: Final = "void"
NOISE: Final = "noise"  # the name of the checks of the noise itself, which every mechanism uses
VERDICTS: Final = (HOLDS, FAILS, VOID)
QUANTITIES: Final = ("epsilon", "delta", "k")

RELATIVE_SLACK: Final = 1e-9  # how far a figure computed in doubles may stray from the exact one, as a share of it


class Verdict(Model):
    """One mechanism, or one variant or law of it, checked at one setting."""

    mechanism: str  # its name in a policy
    basis: str  # the basis of its promise: `proved`, `claimed` or `void`
    claimed: float | str  # the claim: an epsilon, a delta or a k, or `UNBOUNDED`
    measured: float | str  # the worst case that was measured; `UNBOUNDED` if there is no bound
    verdict: str  # `"holds"`, `"fails"`, or `"void"` where nothing is claimed
    variant: str  # what is special about this check: `""`, `"as published"`, `"method piecewise"`
    holds: float | str | None  # what the certificate states as true instead, where it differs from the claim
    quantity: str  # `"epsilon"`, `"delta"` or `"k"`
    exact: bool  # whether every outcome was counted. Otherwise `measured` is a lower bound on the loss, from draws
    confidence: float | None  # confidence of a lower bound from draws
    method: str  # how it was measured, in one phrase
    expected: str  # the verdict that is expected
    sentence: str  # one sentence for the person who decides
    seconds: float  # time taken
    # other problems: draws that do not follow the law, a spend that is too small. There should be none
    problems: Listed[str] = ()

    @model_validator(mode="before")
    @classmethod
    def _left_out(cls, content: Any) -> Any:
        """Drop what follows from the rest of a file, and say in words which figures have no bound."""
        if not isinstance(content, dict):
            return content
        named = content.get("unbounded", ())
        words = dict.fromkeys(FIGURES & set(named), UNBOUNDED) if isinstance(named, list) else {}
        return {k: v for k, v in content.items() if k not in ("as_expected", "unbounded")} | words

    @model_validator(mode="after")
    def _check(self) -> Self:
        words = {"verdict": VERDICTS, "expected": VERDICTS, "quantity": QUANTITIES, "basis": tuple(Basis)}
        for name, allowed in words.items():
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
        """Compare the measurement with the claim; a claim that would hold fails if there are problems."""
        verdict = judge(measured, claimed, quantity)
        return cls(
            mechanism=mechanism,
            variant=variant,
            basis=str(basis),
            claimed=claimed,
            holds=holds,
            measured=measured,
            quantity=quantity,
            exact=confidence is None if exact is None else exact,  # with a confidence it is a bound from draws
            confidence=confidence,
            method=method,
            verdict=FAILS if problems and verdict == HOLDS else verdict,
            expected=expected,
            sentence=sentence,
            seconds=0.0,  # `prove` notes the time
            problems=tuple(problems),
        )

    @property
    def within_promise(self) -> bool:
        """Whether the measurement stays within what the certificate states as true."""
        stated = self.claimed if self.holds is None else self.holds
        return within(self.measured, stated, self.quantity)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one, without problems or excess over what the certificate states."""
        return self.verdict == self.expected and self.within_promise and not self.problems

    def to_dict(self) -> dict[str, object]:
        """Give the verdict as plain data: figures are numbers, or null if they have no bound or are not stated."""
        plain = self.model_dump(mode="json")
        unbounded = sorted(name for name in FIGURES if plain[name] == UNBOUNDED)
        return {**plain, **dict.fromkeys(unbounded), "unbounded": unbounded}


Check = Callable[[bool], Iterator[Verdict]]
"""A check of one mechanism: called with whether to use the long form, it yields verdicts as it reaches them."""
Checks = Mapping[type[Any], Check]  # the checks of a module, by the class of their mechanism


def verdict_on_error(mechanism: str, variant: str, error: Exception) -> Verdict:
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
        sentence=f"{as_sentence(problem)} What it reveals is not known.",
        problems=(problem,),
    )


def as_sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def within(measured: float | str, stated: float | str, quantity: str) -> bool:
    """Return whether a worst case stays within what is stated, up to the rounding of doubles."""
    if isinstance(stated, str):  # nothing exceeds an unbounded loss
        return True
    if isinstance(measured, str):
        return False
    slack = RELATIVE_SLACK * max(1.0, abs(stated))
    return measured >= stated - slack if quantity == "k" else measured <= stated + slack


def judge(measured: float | str, claimed: float | str, quantity: str) -> str:
    """Return the verdict on a claim: ``"void"`` where nothing is claimed, otherwise whether it holds."""
    if isinstance(claimed, str):
        return VOID
    return HOLDS if within(measured, claimed, quantity) else FAILS


# The proof desk: every mechanism checked, every published form too
_HEAD = ("verdict", "mechanism", "variant", "basis", "claimed", "measured")


def checks() -> dict[str, Check]:
    from dunnage.proving import classes, counts, local, rows, statistical

    # The longest first, so that several processes end together.
    parts = (counts.CHECKS, rows.CHECKS, local.CHECKS, rows.SAMPLED_CHECKS, classes.CHECKS)
    own = {kind.name: check for part in parts for kind, check in part.items()}
    by_kind = {"counts": counts.check_any, "noisy": rows.check_any, "classes": classes.check_any}
    others = {kind.name: partial(by_kind[kind.kind], kind) for name, kind in MECHANISMS.items() if name not in own}
    return {**own, **others, **statistical.CHECKS}


class Proof(Model):
    """Verdicts on some mechanisms."""

    seconds: float  # time taken
    verdicts: tuple[Verdict, ...]  # one for each mechanism, variant and setting, the worst first

    def __repr__(self) -> str:
        return f"Proof({len(self.verdicts)} verdicts, {'as expected' if self.as_expected else 'not as expected'})"

    __str__ = __repr__

    @property
    def as_expected(self) -> bool:
        """Whether all verdicts are as expected: what is proved holds, and what is known to be wrong fails."""
        return all(verdict.as_expected for verdict in self.verdicts)

    @property
    def surprises(self) -> tuple[Verdict, ...]:
        """Verdicts that differ from the expected ones."""
        return tuple(verdict for verdict in self.verdicts if not verdict.as_expected)

    def to_dict(self) -> dict[str, object]:
        """Give the proof as plain data."""
        mechanisms = [verdict.to_dict() for verdict in self.verdicts]
        return {"as_expected": self.as_expected, "seconds": round(self.seconds, 3), "mechanisms": mechanisms}

    def summary(self) -> str:
        """Return the proof for a person: a table, why claims fail, and the conclusion."""
        rows = [_HEAD]
        for verdict in self.verdicts:
            mark = "" if verdict.as_expected else "! "
            least = "" if verdict.exact or isinstance(verdict.measured, str) else "at least "
            figures = f"{verdict.quantity} {_figure(verdict.claimed)}", f"{least}{_figure(verdict.measured)}"
            rows.append((f"{mark}{verdict.verdict}", verdict.mechanism, verdict.variant, verdict.basis, *figures))
        widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        failing = [verdict for verdict in self.verdicts if verdict.verdict == FAILS or not verdict.as_expected]
        if failing:
            lines += ["", "What fails, and why:"]
        for verdict in failing:
            more = ""
            if not verdict.as_expected:
                exceeds = not verdict.within_promise and verdict.verdict == verdict.expected
                expected = f' The expected verdict is "{verdict.expected}".'
                more = " It exceeds what its certificate states as true." if exceeds else expected
            lines.append(f"- {_named(verdict)}: {verdict.sentence}{more}")
        num, surprises = len(self.verdicts), len(self.surprises)
        failed = sum(verdict.verdict == FAILS for verdict in self.verdicts)
        wrong = f", and what is known to be wrong fails ({failed})" if failed else ""
        conclusion = f": everything proved stays within its bound{wrong}."
        if surprises:
            differ = "differs" if surprises == 1 else "differ"
            conclusion = f": {surprises} {differ} from the expected verdict (marked !)."
        return "\n".join([*lines, "", f"{num} check{'s' * (num != 1)} in {self.seconds:.0f} s{conclusion}"])


def _named(verdict: Verdict) -> str:
    return f"{verdict.mechanism}, {verdict.variant}" if verdict.variant else verdict.mechanism


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _badness(verdict: Verdict) -> tuple[bool, int, float]:
    """Order verdicts: surprises first, then failures, then what holds by how closely, and last what claims nothing."""
    if verdict.measured == UNBOUNDED:
        excess = float("inf")
    elif isinstance(verdict.claimed, str) or not verdict.claimed:
        excess = 0.0
    else:
        ratio = float(verdict.measured) / verdict.claimed
        excess = 1 / ratio if verdict.quantity == "k" and ratio else ratio
    return not verdict.as_expected, (VOID, HOLDS, FAILS).index(verdict.verdict), excess


def prove(
    mechanisms: Iterable[str] | None = None, *, long: bool = False, jobs: int = 1, progress: Progress | None = None
) -> Proof:
    """Check mechanisms themselves: what each claims, and what it really reveals.

    Parameters
    ----------
    mechanisms
        Their names in a policy; all by default. The noise that they use is always checked as well.
    long
        Check larger domains, more parameters and more neighbours: minutes instead of seconds.
    jobs
        How many processes to use. With more than one, a script must guard its start (``if __name__ == ...``).
    progress
        Called with a line about each check.

    Raises
    ------
    ParameterError
        If a name is not that of a mechanism.
    """
    every = checks()
    names = list(dict.fromkeys(mechanisms)) if mechanisms is not None else []
    if unknown := [name for name in names if name not in every]:
        raise ParameterError(f"there is no mechanism {unknown[0]!r}. Use one of {', '.join(sorted(every))}.")
    start, tell = time.perf_counter(), progress or (lambda stage: None)
    chosen = [name for name in every if name in names or name == NOISE or not names]
    verdicts: list[Verdict] = []
    if jobs > 1 and len(chosen) > 1:
        tell(f"{len(chosen)} mechanisms in {jobs} processes")
        lost = CheckFailed("a checking process was ended from outside. Run it again, or with jobs=1.")
        finished = in_parallel(chosen, partial(_checked, long=long), jobs, lost)
        for at, (name, checked) in enumerate(finished, start=1):
            verdicts += checked
            tell(f"{name} done: {at} of {len(chosen)} mechanisms")
    else:
        for at, name in enumerate(chosen, start=1):
            tell(f"{name}: {at} of {len(chosen)} mechanisms")
            for verdict in _verdicts(name, long):
                tell(f"{_named(verdict)} {verdict.verdict}: {at} of {len(chosen)} mechanisms")
                verdicts.append(verdict)
    verdicts.sort(key=_badness, reverse=True)
    return Proof(verdicts=tuple(verdicts), seconds=time.perf_counter() - start)


def _verdicts(name: str, long: bool) -> Iterator[Verdict]:
    """Check one mechanism and note how long each verdict took; an error ends its check with one more verdict."""
    verdicts = iter(checks()[name](long))
    while True:
        start = time.perf_counter()
        try:
            verdict = next(verdicts, None)
        except Exception as error:  # whatever a broken mechanism raises, the others are still checked
            verdict, verdicts = verdict_on_error(name, "", error), iter(())
        if verdict is None:
            return
        yield verdict.model_copy(update={"seconds": time.perf_counter() - start})


def _checked(name: str, long: bool) -> list[Verdict]:
    return list(_verdicts(name, long))
