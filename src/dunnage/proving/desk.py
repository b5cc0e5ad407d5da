# SPDX-License-Identifier: Apache-2.0
"""The proof desk: every mechanism checked, every published form too, and what must come out of each.

A mechanism brings a check: a function that yields :class:`~dunnage.proving.verdict.Verdict` values, in the ``CHECKS``
of one of the modules below, by its class. One without gets the examination that all of its kind can be given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from dunnage.errors import CheckFailed, ParameterError
from dunnage.mechanisms import MECHANISMS
from dunnage.model.documents import Model
from dunnage.proving.verdict import FAILS, HOLDS, NOISE, UNBOUNDED, VOID, Check, Verdict, verdict_on_error

Progress = Callable[[str], None]
_HEAD = ("verdict", "mechanism", "variant", "basis", "claimed", "found")


def checks() -> dict[str, Check]:
    """Return the check of every mechanism, by its name in a policy, and of the noise that all draw from."""
    from dunnage.proving import classes, counts, local, primitives, rows

    # The longest first, so that two processes end together.
    parts = (counts.CHECKS, rows.CHECKS, local.CHECKS, rows.SAMPLED_CHECKS, classes.CHECKS)
    own = {kind.name: check for part in parts for kind, check in part.items()}
    by_kind = {"counts": counts.check_any, "noisy": rows.check_any, "classes": classes.check_any}
    others = {kind.name: partial(by_kind[kind.kind], kind) for name, kind in MECHANISMS.items() if name not in own}
    return {**own, **others, **primitives.CHECKS}


class Proof(Model):
    """What was found of some mechanisms.

    Parameters
    ----------
    verdicts
        One for each mechanism, variant and setting, the worst first.
    seconds
        How long it took.
    """

    seconds: float
    verdicts: tuple[Verdict, ...]

    @property
    def as_expected(self) -> bool:
        """Whether all came out as it must: what is proved holds, and what is known to be wrong fails."""
        return all(verdict.as_expected for verdict in self.verdicts)

    @property
    def surprises(self) -> tuple[Verdict, ...]:
        """Verdicts that are not what they must be."""
        return tuple(verdict for verdict in self.verdicts if not verdict.as_expected)

    def to_dict(self) -> dict[str, object]:
        """Give the proof as plain data."""
        mechanisms = [verdict.to_dict() for verdict in self.verdicts]
        return {"as_expected": self.as_expected, "seconds": round(self.seconds, 3), "mechanisms": mechanisms}

    def summary(self) -> str:
        """Return the proof for a person: a table, why claims fail, and what it comes to."""
        rows = [_HEAD]
        for verdict in self.verdicts:
            mark = "" if verdict.as_expected else "! "
            least = "" if verdict.exact or isinstance(verdict.measured, str) else "at least "
            claimed = f"{verdict.quantity} {_figure(verdict.claimed)}"
            measured = f"{least}{_figure(verdict.measured)}"
            rows.append(
                (f"{mark}{verdict.verdict}", verdict.mechanism, verdict.variant, verdict.basis, claimed, measured)
            )
        widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        failing = [verdict for verdict in self.verdicts if verdict.verdict == FAILS or not verdict.as_expected]
        if failing:
            lines += ["", "What fails, and why:"]
        for verdict in failing:
            more = ""
            if not verdict.as_expected:
                exceeds = not verdict.within_promise and verdict.verdict == verdict.expected
                must = f' The verdict must be "{verdict.expected}".'
                more = " It exceeds what its certificate says is true." if exceeds else must
            lines.append(f"- {_named(verdict)}: {verdict.sentence}{more}")
        num, surprises = len(self.verdicts), len(self.surprises)
        failed = sum(verdict.verdict == FAILS for verdict in self.verdicts)
        known = f", and what is known to be wrong fails ({failed})" if failed else ""
        conclusion = f": everything proved stays within its bound{known}."
        if surprises:
            conclusion = f": {surprises} {'is' if surprises == 1 else 'are'} not what must come out (marked !)."
        return "\n".join([*lines, "", f"{num} check{'s' * (num != 1)} in {self.seconds:.0f} s{conclusion}"])


def _named(verdict: Verdict) -> str:
    return f"{verdict.mechanism}, {verdict.variant}" if verdict.variant else verdict.mechanism


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _badness(verdict: Verdict) -> tuple[bool, int, float]:
    """Order verdicts: surprises first, then what fails, what holds by how nearly, and last what claims nothing."""
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
    """Check mechanisms themselves: what each claims, and what it really gives away.

    Parameters
    ----------
    mechanisms
        Their names in a policy; all by default. The noise that they draw from is checked with any of them.
    long
        Larger domains, more parameters and neighbours: minutes instead of seconds.
    jobs
        How many processes to use. With more than one, a script must guard its own start (``if __name__ == ...``).
    progress
        Called with what is being checked.

    Raises
    ------
    ParameterError
        If there is no mechanism of such a name.
    """
    every = checks()
    names = list(dict.fromkeys(mechanisms)) if mechanisms is not None else []
    if strange := [name for name in names if name not in every]:
        raise ParameterError(f"there is no mechanism {strange[0]!r}. Use {', '.join(sorted(every))}.")
    start, tell = time.perf_counter(), progress or (lambda stage: None)
    chosen = [name for name in every if name in names or name == NOISE or not names]
    run = _in_parallel if jobs > 1 and len(chosen) > 1 else _one_by_one
    verdicts = sorted(run(chosen, long, jobs, tell), key=_badness, reverse=True)
    return Proof(verdicts=tuple(verdicts), seconds=time.perf_counter() - start)


def _one_by_one(names: Sequence[str], long: bool, jobs: int, tell: Progress) -> Iterator[Verdict]:
    for at, name in enumerate(names, start=1):
        tell(f"{name}: {at} of {len(names)} mechanisms")
        for verdict in _verdicts(name, long):
            tell(f"{_named(verdict)} {verdict.verdict}: {at} of {len(names)} mechanisms")
            yield verdict


def _verdicts(name: str, long: bool) -> Iterator[Verdict]:
    """Check one mechanism and note how long each verdict took; an error ends its check, and is one more verdict."""
    verdicts = iter(checks()[name](long))
    while True:
        start = time.perf_counter()
        try:
            verdict = next(verdicts, None)
        except Exception as error:  # whatever a broken mechanism raises, all others are still checked
            verdict, verdicts = verdict_on_error(name, "", error), iter(())
        if verdict is None:
            return
        yield verdict.model_copy(update={"seconds": time.perf_counter() - start})


def _checked(name: str, long: bool) -> list[Verdict]:
    return list(_verdicts(name, long))


def _in_parallel(names: Sequence[str], long: bool, jobs: int, tell: Progress) -> Iterator[Verdict]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(min(jobs, len(names)), mp_context=multiprocessing.get_context("spawn"))
    try:
        tell(f"{len(names)} mechanisms in {jobs} processes")
        futures = {pool.submit(_checked, name, long): name for name in names}
        for at, future in enumerate(as_completed(futures), start=1):
            yield from future.result()
            tell(f"{futures[future]} done: {at} of {len(names)} mechanisms")
    except BrokenProcessPool:
        raise CheckFailed("a process that checked was ended from outside. Run it again, or with jobs=1.") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
