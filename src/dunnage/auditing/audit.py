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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dunnage._version import __version__
from dunnage.auditing.asked import AnyPlan, Asked, Other, Place, Progress, Told, opened, plan_of
from dunnage.auditing.belonging import refuse_other_policy
from dunnage.auditing.finding import TOPICS, Finding
from dunnage.auditing.fleet import Fleet
from dunnage.auditing.kinds import told_of
from dunnage.auditing.statement import approval, statement_of
from dunnage.auditing.utility import DEFAULT_SECONDS
from dunnage.city import City
from dunnage.dataset import Dataset
from dunnage.errors import InputError, ParameterError
from dunnage.folders import new_folder
from dunnage.planning.plan import FleetPlan
from dunnage.publication import Key
from dunnage.release import COUNTS, ESTIMATES, Release

FORMAT = 1
AUDIT_FILE = "audit.json"
PAGE_FILE = "audit.html"
SIGNOFF_FILE = "sign-off.html"
MOST_AUDIT_BYTES = 1 << 26


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
        The records most at risk, most first, each with its ``source_row`` (from 0, as in the key). Of rows: ``rows``
        that may be it, ``record_linkage``, and ``attribute_linkage`` by sensitive column. Of trips: ``suspicion``,
        trips ``alike`` and ``released``. Of riders: ``guess``, ``trips``, ``types``. Of vehicles: ``stays``,
        ``found_if_it_stays``.
    risk_says
        What that list means, or why nobody is on it.
    notes
        What could not be computed, and why.
    external
        Whether it was made without the data, so that it may be handed out.
    seconds
        Time taken.
    statement
        What the release promises and the policy it was compared with, for the sign-off: public facts alone.
    approved
        Who approved it, and when: ``name``, ``time``; None if nobody did yet.
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
    risk_says: str = ""
    statement: Mapping[str, Any] = field(default_factory=dict)
    approved: Mapping[str, str] | None = None

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
            "at_risk_says": self.risk_says,
            "notes": list(self.notes),
            "statement": dict(self.statement),
            "approved": None if self.approved is None else dict(self.approved),
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

    def write(self, folder: str | os.PathLike[str], *, page: str = "", sign_off: str = "", force: bool = False) -> Path:
        """Write ``audit.json`` and, if given, its pages; readable by their owner alone unless external."""
        held, private = (PAGE_FILE, SIGNOFF_FILE), not self.external
        with new_folder(folder, marker=AUDIT_FILE, force=force, private=private, may_hold=held) as work:
            text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            (work / AUDIT_FILE).write_text(text, encoding="utf-8")
            for name, text in ((PAGE_FILE, page), (SIGNOFF_FILE, sign_off)):
                if text:
                    (work / name).write_text(text, encoding="utf-8")
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
                risk_says=str(content.get("at_risk_says", "")),
                statement=dict(content.get("statement", {})),
                approved=_approval_from(content.get("approved")),
                **{name: content[name] for name in names},
            )
        except OSError as error:
            raise InputError(str(path), [f"cannot be read: {error.strerror}. Give an audit folder."]) from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise InputError(str(path), [f"is not an audit of format {FORMAT}. Make it anew."]) from None


def _approval_from(content: Any) -> dict[str, str] | None:
    return None if content is None else {name: str(content[name]) for name in ("name", "time")}


def _finding_from(content: Mapping[str, Any]) -> Finding:
    low, high = content["interval"]
    return Finding(**{**content, "interval": (float(low), float(high))})


def audit(
    release: Place,
    data: Dataset | Fleet | None = None,
    plan: AnyPlan | str | os.PathLike[str] | None = None,
    *,
    key: Key | None = None,
    city: City | None = None,
    shuttle_hour: float | None = None,
    population: Dataset | None = None,
    also: Sequence[Other] = (),
    tolerance: float | None = None,
    external: bool = False,
    approved_by: str | None = None,
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
        A plan made on the release, of packages or of shuttles, or its folder.
    key
        Which row is which record. Needed to apply a packing plan; without it records are matched to classes by value.
    city, shuttle_hour
        For a plan of shuttles: the city it was sized in, and what an hour of a shuttle costs, in any currency.
    population
        Everyone the records may have been drawn from, under the same policy: for the journalist's risk.
    also
        Other releases of the same records: ``(release, data)`` or ``(release, data, key)`` each.
    tolerance
        Also attack with values that are known only within this share of themselves on either side.
    external
        Compute only what anyone can who has release and plan.
    approved_by
        Name and role of who approves the release, for the sign-off.
    seconds
        Most time for the plan on the true weights.
    progress
        Called with a line as each attack begins.

    Raises
    ------
    UserError
        If the release has neither classes nor noisy rows, counts or estimates, or release, data, key, plan and city do
        not belong together.
    """
    start = time.monotonic()
    if not external and data is None:
        raise ParameterError("an audit compares with the true data. Got none. Give them, or ask for an external audit.")
    if tolerance is not None and not 0 < tolerance < 1:
        raise ParameterError(f"tolerance must be between 0 and 1, a share of the value. Got {tolerance}.")
    approved = approval(approved_by)
    found, key = opened(release, key, with_key=not external)
    rows, fleet = (None, None) if external else _rows_or_fleet(found, data)
    asked = Asked(
        release=found,
        data=rows,
        fleet=fleet,
        plan=_planned(plan, found, city, external=external),
        city=city,
        shuttle_hour=shuttle_hour,
        key=key,
        population=population,
        also=also,
        tolerance=tolerance,
        seconds=seconds,
        tell=progress or (lambda line: None),
    )
    return _audit_of(asked, told_of(asked), approved, start)


def _audit_of(asked: Asked, told: Told, approved: Mapping[str, str] | None, start: float) -> Audit:
    """Put what was found under what was audited."""
    body = asked.release.certificate.body
    return Audit(
        dataset=str(body["dataset"]),
        period=body.get("period"),
        release=asked.release.certificate.digest,
        protects=str(body["guarantee"]["protects"]),
        statistic=told.statistic,
        findings=tuple(sorted(told.findings, key=lambda item: TOPICS.index(item.topic))),
        at_risk=tuple(told.at_risk),
        notes=tuple(told.notes),
        external=asked.external,
        seconds=time.monotonic() - start,
        risk_says=told.risk_says,
        statement=statement_of(asked),
        approved=approved,
    )


def _planned(
    plan: AnyPlan | str | os.PathLike[str] | None, release: Release, city: City | None, *, external: bool
) -> AnyPlan | None:
    """Return the plan, if there is what it takes to look at it."""
    found = plan_of(plan, release, external=external)
    if isinstance(found, FleetPlan) and city is None and not external:
        raise ParameterError("a plan of shuttles is audited in a city. Got none. Give --city CITY, as for size.")
    return found


def _rows_or_fleet(release: Release, data: Dataset | Fleet | None) -> tuple[Dataset | None, Fleet | None]:
    """Return the data as what they are, if that is what the release was made from."""
    of_devices = release.certificate.body["kind"] == ESTIMATES
    if data is not None and of_devices != isinstance(data, Fleet):
        what = "devices, so it is compared with a Fleet" if of_devices else "an owner's rows, so no Fleet made it"
        raise ParameterError(f"the release comes from {what}. Got {type(data).__name__}. Read the data anew.")
    if isinstance(data, Fleet):
        return None, data
    if data is not None and release.certificate.body["kind"] != COUNTS:  # which have other attributes
        refuse_other_policy(release, data)
    return data, None
