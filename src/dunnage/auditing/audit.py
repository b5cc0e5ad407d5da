# SPDX-License-Identifier: Apache-2.0
"""audit: what an attacker could still learn from a release, and what privacy cost, as findings.

Each finding has a value, an interval, a baseline (what the attacker, or the planner, has without the release) and a
sentence. Figures are counted over all records, so that most intervals are points; what is estimated has a 95 %
interval. An audit compares with the truth and is private; an external one is made from release and plan alone, by
code that is never given the data.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage._version import __version__
from dunnage.auditing.carriers import (
    CarrierCase,
    EstimatesSight,
    carrier_inside_findings,
    carrier_outside_findings,
)
from dunnage.auditing.counts import (
    CountsCase,
    CountsSight,
    columns_of,
    counts_inside_findings,
    counts_outside_findings,
)
from dunnage.auditing.finding import TOPICS, Finding
from dunnage.auditing.fleet import Fleet
from dunnage.auditing.inside import Case, correspondence_findings, linkage_findings, plan_findings, population_findings
from dunnage.auditing.noisy import NoisyCase, NoisySight, noisy_inside_findings, noisy_outside_findings
from dunnage.auditing.outside import outside_findings
from dunnage.auditing.rides import ride_inside_findings, ride_outside_findings
from dunnage.auditing.sampled import NO_ROWS, sampled_inside_findings, sampled_outside_findings
from dunnage.auditing.sight import Known, Sight
from dunnage.auditing.utility import DEFAULT_SECONDS
from dunnage.certificate import canonical
from dunnage.dataset import Dataset
from dunnage.errors import DunnageError, InputError, ParameterError, ReleaseError
from dunnage.folders import new_folder
from dunnage.mechanisms.features import Feature
from dunnage.planning.plan import Plan
from dunnage.publication import Key, key_path
from dunnage.publishing import mechanism_of
from dunnage.release import Release
from dunnage.trips import Universe
from dunnage.verification.reading import same

FORMAT = 1
AUDIT_FILE = "audit.json"
PAGE_FILE = "audit.html"
NOISE = "noise"
"""What a noisy release tells, in the place of a statistic of classes."""
COUNTS = "counts"
"""What a release of counts tells, in the place of a statistic of classes."""
ESTIMATES = "estimates"
"""What a release of estimates from devices tells, in the place of a statistic of classes."""
MOST_AUDIT_BYTES = 1 << 26

Progress = Callable[[str], None]
Place = Release | str | os.PathLike[str]
Other = tuple[Place, Dataset] | tuple[Place, Dataset, Key | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """Findings about one release. Private unless ``external``; its ``repr`` shows no figure.

    Parameters
    ----------
    dataset, period
        What was released.
    release
        Digest of its certificate.
    protects
        What one record is.
    statistic
        What was told about a class, or ``noise``, ``counts``, ``estimates``.
    findings
        The findings, by topic.
    at_risk
        The records that are easiest to name, most first: ``source_row`` (from 0, as in the key), ``rows`` that may be
        it, ``record_linkage``, and ``attribute_linkage`` by sensitive column.
    notes
        What could not be computed, and why.
    external
        Whether it was made without the data, so that it may be handed out.
    seconds
        Time taken.
    """

    dataset: str
    period: str | None
    release: str
    protects: str
    statistic: str
    findings: tuple[Finding, ...]
    at_risk: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    external: bool
    seconds: float

    def __repr__(self) -> str:
        return f"Audit({self.dataset!r}, {len(self.findings)} findings, {'external' if self.external else 'private'})"

    def finding(self, name: str) -> Finding:
        """Return a finding by its name.

        Raises
        ------
        ParameterError
            If there is no such finding.
        """
        for item in self.findings:
            if item.name == name:
                return item
        known = ", ".join(item.name for item in self.findings)
        raise ParameterError(f"the audit has no finding {name!r}. It has: {known}.")

    @property
    def says(self) -> str:
        """Say who may see the audit."""
        if self.external:
            return "Made from release and plan alone: whoever has those can compute it. It may be handed out."
        return "Private: compares the release with the true data. For the owner's eyes only; do not hand out."

    def to_dict(self) -> dict[str, Any]:
        """Give the audit as plain data."""
        return {
            "format": FORMAT,
            "kind": "audit",
            "dataset": self.dataset,
            "period": self.period,
            "release": self.release,
            "protects": self.protects,
            "statistic": self.statistic,
            "external": self.external,
            "says": self.says,
            "findings": [item.to_dict() for item in self.findings],
            "at_risk": [dict(item) for item in self.at_risk],
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "software": {"dunnage": __version__},
        }

    def summary(self) -> str:
        """Describe the audit for a person: each finding with its baseline, then its sentence."""
        lines = [f"Audit of {self.dataset}" + (f", {self.period}" if self.period else ""), self.says, ""]
        width = max((len(item.name) for item in self.findings), default=0)
        for item in self.findings:
            low, high = item.interval
            between = f" ({item.text(low)} to {item.text(high)})" if low < high else ""
            lines.append(f"{item.name:<{width}}  {item.text(item.value)}{between}, baseline {item.text(item.baseline)}")
            lines.append(f"{'':<{width}}  {item.sentence}")
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def write(self, folder: str | os.PathLike[str], *, page: str = "", force: bool = False) -> Path:
        """Write ``audit.json`` and, if given, its page; readable by their owner alone unless external."""
        with new_folder(folder, marker=AUDIT_FILE, force=force, private=not self.external) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / AUDIT_FILE).write_text(text, encoding="utf-8")
            if page:
                (work / PAGE_FILE).write_text(page, encoding="utf-8")
        return Path(folder)

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Audit:
        """Read an audit folder.

        Raises
        ------
        InputError
            If it is not one.
        """
        path = Path(folder) / AUDIT_FILE
        try:
            if path.stat().st_size > MOST_AUDIT_BYTES:
                raise ValueError
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT or content["kind"] != "audit":
                raise ValueError
            findings = tuple(_finding_from(item) for item in content["findings"])
            names = ("dataset", "period", "release", "protects", "statistic", "external", "seconds")
            return cls(
                findings=findings,
                at_risk=tuple(content["at_risk"]),
                notes=tuple(content["notes"]),
                **{name: content[name] for name in names},
            )
        except OSError as error:
            raise InputError(str(path), [f"cannot be read: {error.strerror}. Give an audit folder."]) from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError(str(path), [f"is not an audit of format {FORMAT}. Make it anew."]) from None


def _finding_from(content: Mapping[str, Any]) -> Finding:
    low, high = content["interval"]
    return Finding(**{**content, "interval": (float(low), float(high))})


def audit(
    release: Place,
    data: Dataset | Fleet | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    key: Key | None = None,
    population: Dataset | None = None,
    also: Sequence[Other] = (),
    tolerance: float | None = None,
    external: bool = False,
    seconds: float = DEFAULT_SECONDS,
    progress: Progress | None = None,
) -> Audit:
    """Attack a release of classes, noisy rows, counts or estimates, and score it against the truth.

    The audit is private unless external.

    Parameters
    ----------
    release
        The release, or its folder; the key beside a folder is found by itself.
    data
        The rows that were published, or for estimates the :class:`~dunnage.auditing.fleet.Fleet` that reported; not
        needed, and not looked at, for an external audit.
    plan
        A packing plan made on the release, or its folder.
    key
        Which row is which record. Needed to apply a plan; without it records are matched to classes by value.
    population
        Everyone the records may have been drawn from, under the same policy: for the journalist's risk.
    also
        Other releases of the same records: ``(release, data)`` or ``(release, data, key)`` each.
    tolerance
        Also attack with values that are known only within this share of themselves on either side.
    external
        Compute only what anyone can who has release and plan.
    seconds
        Most time for the plan on the true weights.
    progress
        Called with a line as each attack begins.

    Raises
    ------
    UserError
        If the release has neither classes nor noisy rows, counts or estimates, or release, data, key and plan do not
        belong together.
    """
    start, tell = time.monotonic(), progress or (lambda line: None)
    if not external and data is None:
        raise ParameterError("an audit compares with the true data. Got none. Give them, or ask for an external audit.")
    if tolerance is not None and not 0 < tolerance < 1:
        raise ParameterError(f"tolerance must be between 0 and 1, a share of the value. Got {tolerance}.")
    found, key = _opened(release, key, with_key=not external)
    rows, fleet = (None, None) if external else _rows_or_fleet(found, data)
    if rows is not None and found.certificate.body["kind"] != COUNTS:  # which have other attributes
        _refuse_other_policy(found, rows)
    asked = _Asked(
        release=found,
        data=rows,
        fleet=fleet,
        plan=_plan_of(plan, found, external=external),
        key=key,
        population=population,
        also=also,
        tolerance=tolerance,
        seconds=seconds,
        tell=tell,
    )
    told = _told(asked)
    body = found.certificate.body
    return Audit(
        dataset=str(body["dataset"]),
        period=body.get("period"),
        release=found.certificate.digest,
        protects=str(body["guarantee"]["protects"]),
        statistic=told.statistic,
        findings=tuple(sorted(told.findings, key=lambda item: TOPICS.index(item.topic))),
        at_risk=tuple(told.at_risk),
        notes=tuple(told.notes),
        external=external,
        seconds=time.monotonic() - start,
    )


def _rows_or_fleet(release: Release, data: Dataset | Fleet | None) -> tuple[Dataset | None, Fleet | None]:
    """Return the data as what they are, if that is what the release was made from."""
    of_devices = release.certificate.body["kind"] == ESTIMATES
    if data is not None and of_devices != isinstance(data, Fleet):
        what = "devices, so it is compared with a Fleet" if of_devices else "an owner's rows, so no Fleet made it"
        raise ParameterError(f"the release comes from {what}. Got {type(data).__name__}. Read the data anew.")
    return (None, data) if isinstance(data, Fleet) else (data, None)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Asked:
    """What is audited, and with what; no data for an external audit."""

    release: Release
    data: Dataset | None
    fleet: Fleet | None
    plan: Plan | None
    key: Key | None
    population: Dataset | None
    also: Sequence[Other]
    tolerance: float | None
    seconds: float
    tell: Progress


@dataclass(eq=False)
class _Told:
    """What was found so far."""

    statistic: str
    findings: list[Finding] = field(default_factory=list)
    at_risk: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, findings: Iterable[Finding], notes: Iterable[str] = ()) -> None:
        """Put findings and notes behind those there are."""
        self.findings += findings
        self.notes += notes


def _told(asked: _Asked) -> _Told:
    """Audit a release by what it is of."""
    if asked.release.certificate.body["kind"] == COUNTS:
        return _told_by_counts(asked)
    if asked.release.certificate.body["kind"] == ESTIMATES:
        return _told_by_estimates(asked)
    return _told_by_classes(asked) if "class_id" in asked.release.data.column_names else _told_by_noise(asked)


def _told_by_estimates(asked: _Asked) -> _Told:
    """Audit a release of estimates from devices."""
    sight, told = EstimatesSight.of(asked.release), _Told(ESTIMATES)
    outside, notes = carrier_outside_findings(sight.task, asked.tell)
    inside, more = (
        carrier_inside_findings(CarrierCase.of(sight, asked.fleet), asked.tell) if asked.fleet is not None else ([], [])
    )
    known = {item.name for item in inside}  # numbers are guessed better by who knows the fleet: that counts
    told.add([item for item in outside if item.name not in known], notes)
    told.add(inside, [*more, *_estimates_lacks(asked)])
    return told


def _estimates_lacks(asked: _Asked) -> list[str]:
    """Say which questions were not put to a release of estimates, or cannot be answered."""
    wanted = {
        "How far estimates are off cannot be told without the truth.": asked.fleet is None,
        "Reports are attacked by their laws: there are no values to know roughly.": asked.tolerance is not None,
        "Estimates have no rows, so a population cannot be looked for in them.": asked.population is not None,
        "Estimates have no classes, so they were not compared with other releases; losses of reports add up.": bool(
            asked.also
        ),
    }
    return [note for note, was_asked in wanted.items() if was_asked]


def _told_by_counts(asked: _Asked) -> _Told:
    """Audit a release of counts."""
    sight, told = CountsSight.of(asked.release), _Told(COUNTS)
    outside, notes = counts_outside_findings(sight, asked.tell)
    told.add([item for item in outside if item.topic != "utility"], notes)
    if asked.data is not None:
        _refuse_other_universe(sight, asked.data)
        told.add([], _policy_notes(sight, asked.data))
        told.add(*counts_inside_findings(CountsCase.of(sight, asked.data, asked.key), asked.tell))
    # What counts lack in truth tells more than the noise they were given: it comes first.
    told.add([item for item in outside if item.topic == "utility"], _counts_lacks(asked))
    return told


def _counts_lacks(asked: _Asked) -> list[str]:
    """Say which questions were not put to a release of counts, or cannot be answered."""
    wanted = {
        "How far counts are off, and how many trips were created, cannot be told without the truth.": asked.data
        is None,
        "Counts are attacked by who knows all trips but one: there are no values to know roughly.": asked.tolerance
        is not None,
        "Counts have no rows, so a population cannot be looked for in them.": asked.population is not None,
        "Counts have no classes, so they were not compared with other releases; losses of releases add up.": bool(
            asked.also
        ),
    }
    return [note for note, was_asked in wanted.items() if was_asked]


def _told_by_classes(asked: _Asked) -> _Told:
    """Audit a release of classes: k-anonymous, or of a secret sample."""
    sight = Sight.of(asked.release)
    told = _Told(sight.statistic)
    if len(sight.sizes):
        told.add(outside_findings(sight, asked.plan, asked.tell))
    else:
        told.add([], [NO_ROWS])
    if sight.clustered:  # what they lose is measured by their own distances
        told.findings = [item for item in told.findings if item.topic != "utility"]
        told.add(ride_outside_findings(sight))
    if sight.sampled:
        told.add(sampled_outside_findings(sight))
    if asked.data is not None and len(sight.sizes):
        case = Case.of(sight, asked.data, asked.key)
        more, told.at_risk = linkage_findings(case, asked.tolerance, asked.tell)
        told.add(more, case.notes)
        if asked.population is not None:
            known = population_findings(case, asked.population)
            told.findings = [item for item in told.findings if item.name != known[0].name] + known
        if sight.clustered:
            told.add(*ride_inside_findings(case, asked.tell))
        for part in _further(case, asked):
            told.add(*part)
    if asked.data is not None and sight.sampled:
        asked.tell("drawing the sample again")
        told.add(sampled_inside_findings(sight, _checked(sight, asked.data, asked.key), asked.key))
    if "noise" in asked.release.certificate.body["measures"]:
        _add_noisy(told, asked)
    return told


def _checked(sight: Sight, data: Dataset, key: Key | None) -> Dataset:
    """Return the data, if they have what was released, and the key is theirs: a release without rows tells no more."""
    Known.of_records(sight, data)
    if key is not None and not key.belongs_to(data):
        raise ReleaseError("the key was made from other rows. Give the data exactly as they were published.")
    return data


def _told_by_noise(asked: _Asked) -> _Told:
    """Audit a release of noisy rows."""
    told = _Told(NOISE)
    _add_noisy(told, asked)
    if asked.data is not None:
        told.add([], _noisy_lacks(asked))
        if asked.plan is not None:
            told.add(*_plan_parts(asked, asked.data))
    return told


def _add_noisy(told: _Told, asked: _Asked) -> None:
    sight = NoisySight.of(asked.release)
    told.add(noisy_outside_findings(sight, asked.plan, asked.tell), sight.notes)
    if asked.data is not None:
        findings, at_risk, notes = noisy_inside_findings(
            NoisyCase.of(sight, asked.data, asked.key), asked.plan, asked.tell
        )
        told.add(findings, notes)
        told.at_risk = told.at_risk or at_risk


def _noisy_lacks(asked: _Asked) -> list[str]:
    """Say which questions were not put to a noisy release."""
    wanted = {
        "Noisy rows were attacked with values known exactly; not with values known roughly.": asked.tolerance
        is not None,
        "A population tells nothing more of noisy rows: all records are in the release.": asked.population is not None,
        "Noisy rows have no classes, so they were not compared with other releases.": bool(asked.also),
    }
    return [note for note, was_asked in wanted.items() if was_asked]


def _further(case: Case, asked: _Asked) -> Iterator[tuple[list[Finding], list[str]]]:
    """Compare with other releases and with the truth of a plan."""
    for number, (release, data, *keys) in enumerate(asked.also, 1):
        asked.tell("comparing with another release")
        other, key = _opened(release, keys[0] if keys else None)
        _refuse_other_policy(other, data)
        yield correspondence_findings(case, Case.of(Sight.of(other), data, key), number)
    if asked.plan is not None:
        yield _plan_parts(asked, case.data)


def _plan_parts(asked: _Asked, data: Dataset) -> tuple[list[Finding], list[str]]:
    assert asked.plan is not None
    return plan_findings(asked.release, data, asked.key, asked.plan, asked.seconds, asked.tell)


def _refuse_other_policy(release: Release, data: Dataset) -> None:
    """Refuse data read under a policy whose public facts are not those of the release."""
    stated, read = release.attributes, {item["name"]: item for item in data.schema.describe()}
    differ = [name for name in stated if name not in read or canonical(read[name]) != canonical(stated[name])]
    differ += [name for name in read if name not in stated]
    if differ:
        raise ReleaseError(
            f"the release was made under another policy: {'; '.join(_difference(n, stated, read) for n in differ)}. "
            "Give the policy, and the files that it names, as they were published."
        )


def _difference(name: str, stated: Mapping[str, Any], read: Mapping[str, Any]) -> str:
    """Say in which public facts two descriptions of an attribute differ."""
    if name not in stated or name not in read:
        return f"{name!r} is only in the {'release' if name in stated else 'policy'}"
    first, second = stated[name], read[name]
    facts = [fact for fact in (*first, *(f for f in second if f not in first)) if first.get(fact) != second.get(fact)]
    return f"{name!r} has another {' and '.join(facts)}"


def _refuse_other_universe(sight: CountsSight, data: Dataset) -> None:
    """Refuse data read under a policy that counts trips of other types than the release, naming what differs."""
    if data.schema.trip is None:
        raise ReleaseError("the policy does not say what a trip is. Give the policy that the counts were made under.")
    universe = data.schema.universe(data.period)
    differ = _other_facts(sight.universe, universe) or _other_groups(sight, universe)
    if differ:
        raise ReleaseError(
            f"the release was made under another policy, or of another period: it has other {', '.join(differ)}. Give "
            "policy, city and period as they were published."
        )


def _other_facts(stated: Universe, read: Universe) -> list[str]:
    """Name the public facts in which two universes differ."""
    pairs = {"stops": (stated.stops, read.stops), "windows": (stated.windows, read.windows)}
    differ = [name for name, (one, other) in pairs.items() if one != other]
    if stated.time is not None and read.time is not None and not differ:
        first, second = stated.time.describe(), read.time.describe()
        words = {"lower": "windows", "upper": "windows", "window_minutes": "windows", "day": "days"}
        differ += [words.get(fact, fact) for fact in first if first[fact] != second[fact]]
    if (stated.days, stated.num_dates) != (read.days, read.num_dates):
        differ.append("days")
    return list(dict.fromkeys(differ))


def _other_groups(sight: CountsSight, universe: Universe) -> list[str]:
    """Name zones and modes, if by them cells fall into another number of groups than the release states."""
    differ = []
    for item in sight.asked[1:]:
        columns = columns_of(item.name)
        words = {"origin_zone": "zones", "destination_zone": "zones", "mode": "modes"}
        absent = [words[name] for name in columns if name not in universe.columns]
        if not absent and Feature.of(universe, columns).size == item.groups:
            continue
        differ += absent or [words[name] for name in columns if name in words]
    return list(dict.fromkeys(differ))


def _policy_notes(sight: CountsSight, data: Dataset) -> list[str]:
    """Say in what the policy that data were read under would release other counts, which does not matter here."""
    stated, measures = dict(sight.mechanism), sight.release.certificate.body["measures"]
    try:
        read = dict(mechanism_of(data.policy).promise(data.schema).mechanism)
    except DunnageError:  # of a policy that could not be published under
        read = dict(data.policy.mechanism)
    differ = [name for name in {**stated, **read} if not same(stated.get(name), read.get(name))]
    if "name" in differ:
        differ = ["mechanism"]
    told, bound = measures.get("contribution") or {}, data.schema.contribution
    if (told.get("max"), told.get("per")) != ((bound.max, bound.per) if bound is not None else (None, None)):
        differ.append("contribution")
    if sight.protects != data.schema.protects:
        differ.append("protects")
    return [f"The policy says otherwise than the release of: {', '.join(differ)}. The release's own are used."][
        : len(differ)
    ]


def _opened(release: Place, key: Key | None, *, with_key: bool = True) -> tuple[Release, Key | None]:
    """Read a release folder, and the key beside it if there is one."""
    if isinstance(release, Release):
        return release, key
    beside = key_path(release)
    found = Release.read(release)
    return found, Key.read(beside) if with_key and key is None and beside.is_file() else key


def _plan_of(plan: Plan | str | os.PathLike[str] | None, release: Release, *, external: bool) -> Plan | None:
    """Read a plan, and check that it may be looked at here."""
    if plan is None or isinstance(plan, Plan):
        found = plan
    elif not Path(plan).is_dir():
        raise ParameterError(f"{os.fspath(plan)} is not a plan folder. Give the folder that pack wrote.")
    else:
        found = Plan.read(plan)
    if found is None:
        return None
    if found.release != release.certificate.digest and (found.release or not found.external):
        raise ReleaseError("the plan was made on another release. Give that release, or plan on this one.")
    if external and found.private:
        raise ParameterError("the plan was made on true weights, so nothing of it may be handed out. Leave it away.")
    return found
