# SPDX-License-Identifier: Apache-2.0
"""Which attacks and measures fit a release, by what it is of: classes, noisy rows, counts or estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dunnage.auditing.asked import Asked, Told, opened
from dunnage.auditing.belonging import policy_notes, refuse_other_policy, refuse_other_universe
from dunnage.auditing.carriers import (
    CarrierCase,
    EstimatesSight,
    carrier_inside_findings,
    carrier_outside_findings,
)
from dunnage.auditing.counts import CountsCase, CountsSight, counts_inside_findings, counts_outside_findings
from dunnage.auditing.exposed import counts_at_risk, vehicles_at_risk
from dunnage.auditing.finding import Finding
from dunnage.auditing.inside import Case, correspondence_findings, linkage_findings, plan_findings, population_findings
from dunnage.auditing.noisy import NoisyCase, NoisySight, noisy_inside_findings, noisy_outside_findings
from dunnage.auditing.outside import outside_findings
from dunnage.auditing.rides import ride_inside_findings, ride_outside_findings
from dunnage.auditing.sampled import NO_ROWS, sampled_inside_findings, sampled_outside_findings
from dunnage.auditing.shuttles import fleet_findings, fleet_note
from dunnage.auditing.sight import Known, Sight
from dunnage.dataset import Dataset
from dunnage.errors import ReleaseError
from dunnage.publication import Key
from dunnage.release import COUNTS, ESTIMATES

NOISE = "noise"
"""What a noisy release tells, in the place of a statistic of classes."""
ROWS_SAY = (
    "The records whose row is named most easily by who knows their values; of equally easy ones, those whose sensitive "
    "value is guessed most easily."
)
NO_ROW_KNOWN = "Nobody is listed: which noisy row is whose only the key tells."


def told_of(asked: Asked) -> Told:
    """Audit a release by what it is of."""
    of_kind: Mapping[str, Callable[[Asked], Told]] = {COUNTS: _told_by_counts, ESTIMATES: _told_by_estimates}
    return of_kind.get(asked.release.kind, _told_by_rows)(asked)


# Estimates from devices


def _told_by_estimates(asked: Asked) -> Told:
    """Audit a release of estimates from devices."""
    sight, told = EstimatesSight.of(asked.release), Told(ESTIMATES)
    outside, notes = carrier_outside_findings(sight.task, asked.tell)
    inside: list[Finding] = []
    more: list[str] = []
    if asked.fleet is not None:
        case = CarrierCase.of(sight, asked.fleet)
        inside, more = carrier_inside_findings(case, asked.tell)
        told.at_risk, told.risk_says = vehicles_at_risk(case)
    known = {item.name for item in inside}  # numbers are guessed better by who knows the fleet: that counts
    told.add([item for item in outside if item.name not in known], notes)
    told.add(inside, [*more, *_estimates_lacks(asked)])
    return told


def _estimates_lacks(asked: Asked) -> list[str]:
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


# Counts of trips


def _told_by_counts(asked: Asked) -> Told:
    """Audit a release of counts."""
    sight, told = CountsSight.of(asked.release), Told(COUNTS)
    outside, notes = counts_outside_findings(sight, asked.tell)
    told.add([item for item in outside if item.topic != "utility"], notes)
    if asked.data is not None:
        refuse_other_universe(sight, asked.data)
        told.add([], policy_notes(sight, asked.data))
        case = CountsCase.of(sight, asked.data, asked.key)
        told.add(*_fleet_parts(asked, asked.data))
        told.add(*counts_inside_findings(case, asked.tell))
        told.at_risk, told.risk_says = counts_at_risk(case)
    # What counts lack in truth tells more than the noise they were given: it comes first.
    told.add([item for item in outside if item.topic == "utility"], _counts_lacks(asked))
    return told


def _fleet_parts(asked: Asked, data: Dataset) -> tuple[list[Finding], list[str]]:
    """Run planned shuttles on the true trips, if there are any, and a city to run them in."""
    if asked.shuttles is None or asked.city is None:
        return [], []
    hour = asked.shuttle_hour
    return fleet_findings(
        asked.shuttles, data, asked.release, asked.city, asked.key, shuttle_hour=hour, tell=asked.tell
    )


def _counts_lacks(asked: Asked) -> list[str]:
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
    fleet = [fleet_note(asked.shuttles)] if asked.external and asked.shuttles is not None else []
    return fleet + [note for note, was_asked in wanted.items() if was_asked]


# Rows


def _told_by_rows(asked: Asked) -> Told:
    """Audit a release of rows: of classes, or noisy ones."""
    return _told_by_classes(asked) if "class_id" in asked.release.data.column_names else _told_by_noise(asked)


def _told_by_classes(asked: Asked) -> Told:
    """Audit a release of classes: k-anonymous, or of a secret sample."""
    sight = Sight.of(asked.release)
    told = Told(sight.statistic)
    _add_outside(told, asked, sight)
    if asked.data is not None and len(sight.sizes):
        _add_inside(told, asked, Case.of(sight, asked.data, asked.key))
    elif asked.data is not None:
        told.risk_says = NO_ROWS
    if asked.data is not None and sight.sampled:
        asked.tell("drawing the sample again")
        told.add(sampled_inside_findings(sight, _checked(sight, asked.data, asked.key), asked.key))
    if "noise" in asked.release.certificate.body["measures"]:
        _add_noisy(told, asked)
    return told


def _add_outside(told: Told, asked: Asked, sight: Sight) -> None:
    """Add what classes tell anyone."""
    if len(sight.sizes):
        told.add(outside_findings(sight, asked.packing, asked.tell))
    else:
        told.add([], [NO_ROWS])
    if sight.clustered:  # what they lose is measured by their own distances
        told.findings = [item for item in told.findings if item.topic != "utility"]
        told.add(ride_outside_findings(sight))
    if sight.sampled:
        told.add(sampled_outside_findings(sight))


def _add_inside(told: Told, asked: Asked, case: Case) -> None:
    """Add what it takes the true records to tell of classes."""
    more, told.at_risk = linkage_findings(case, asked.tolerance, asked.tell)
    told.risk_says = ROWS_SAY
    told.add(more, case.notes)
    if asked.population is not None:
        known = population_findings(case, asked.population)
        told.findings = [item for item in told.findings if item.name != known[0].name] + known
    if case.sight.clustered:
        told.add(*ride_inside_findings(case, asked.tell))
    for part in _further(case, asked):
        told.add(*part)


def _checked(sight: Sight, data: Dataset, key: Key | None) -> Dataset:
    """Return the data, if they have what was released, and the key is theirs: a release without rows tells no more."""
    Known.of_records(sight, data)
    if key is not None and not key.belongs_to(data):
        raise ReleaseError("the key was made from other rows. Give the data exactly as they were published.")
    return data


def _told_by_noise(asked: Asked) -> Told:
    """Audit a release of noisy rows."""
    told = Told(NOISE)
    _add_noisy(told, asked)
    if asked.data is not None:
        told.add([], _noisy_lacks(asked))
        told.add(*_plan_parts(asked, asked.data))
    return told


def _add_noisy(told: Told, asked: Asked) -> None:
    sight = NoisySight.of(asked.release)
    told.add(noisy_outside_findings(sight, asked.packing, asked.tell), sight.notes)
    if asked.data is not None:
        findings, at_risk, notes = noisy_inside_findings(
            NoisyCase.of(sight, asked.data, asked.key), asked.packing, asked.tell
        )
        told.add(findings, notes)
        told.at_risk = told.at_risk or at_risk
        told.risk_says = told.risk_says or (ROWS_SAY if at_risk else NO_ROW_KNOWN)


def _noisy_lacks(asked: Asked) -> list[str]:
    """Say which questions were not put to a noisy release."""
    wanted = {
        "Noisy rows were attacked with values known exactly; not with values known roughly.": asked.tolerance
        is not None,
        "A population tells nothing more of noisy rows: all records are in the release.": asked.population is not None,
        "Noisy rows have no classes, so they were not compared with other releases.": bool(asked.also),
    }
    return [note for note, was_asked in wanted.items() if was_asked]


def _further(case: Case, asked: Asked) -> Iterator[tuple[list[Finding], list[str]]]:
    """Compare with other releases and with the truth of a plan."""
    for number, (release, data, *keys) in enumerate(asked.also, 1):
        asked.tell("comparing with another release")
        other, key = opened(release, keys[0] if keys else None)
        refuse_other_policy(other, data)
        yield correspondence_findings(case, Case.of(Sight.of(other), data, key), number)
    yield _plan_parts(asked, case.data)


def _plan_parts(asked: Asked, data: Dataset) -> tuple[list[Finding], list[str]]:
    """Apply a plan of packages to the truth, if there is one."""
    if asked.packing is None:
        return [], []
    return plan_findings(asked.release, data, asked.key, asked.packing, asked.seconds, asked.tell)
