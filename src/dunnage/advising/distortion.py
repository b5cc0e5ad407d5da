# SPDX-License-Identifier: Apache-2.0
"""The goal ``distortion``: how much of a table is lost, against how likely a record's row is named.

One measure of each for all mechanisms, whatever they minimise themselves: the total distortion with all attributes
counting alike, where a record that was not released is lost altogether; and record linkage, the chance to name the row
of a released record all of whose values are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dunnage.advising.common import (
    KS,
    QUICK_KS,
    Candidate,
    Opened,
    checked_tasks,
    codes_of,
    mechanism_table,
    opened,
    released,
    sampled_says,
)
from dunnage.advising.frontier import Failure, Point
from dunnage.advising.sweep import Asked, Case, Drawn, Goal, Reference, Task
from dunnage.errors import NoPlanError, ParameterError
from dunnage.noise import Noise

if TYPE_CHECKING:
    from dunnage.dataset import Dataset
    from dunnage.publication import Publication

DISTORTIONS, QUICK_DISTORTIONS = (0.05, 0.1, 0.2, 0.3), (0.1,)
EPSILONS, QUICK_EPSILONS, DELTA = (1, 2, 4), (2,), 1e-3
MOST_ATTRIBUTES = 4
"""A partition by more attributes than this takes too long to be measured again and again."""


@dataclass(frozen=True)
class Lost:
    """What a table loses."""

    name: str = "distortion"
    cost_name: str = "total distortion"
    cost_unit: str = "distortion"
    risk_name: str = "record linkage"
    default_max_cost: float = 0.25
    draw_seconds: float = 60.0

    def open(self, asked: Asked) -> Opened:
        """Read the rows."""
        policy, data, digest = opened(asked, self.name)
        if not policy.schema.quasi_identifiers:
            raise ParameterError(
                "nothing can be distorted without a quasi-identifier. The policy has none. Give the columns that an "
                'outsider may know role = "quasi-identifier".'
            )
        return Opened(asked=asked, data=data, digest=digest, policy=policy)

    def tasks(self, case: Case) -> tuple[Sequence[Task], Sequence[Failure]]:
        """Name mechanisms and parameters that fit the rows."""
        assert isinstance(case, Opened)
        return checked_tasks(case, _candidates(case))

    def measure(self, case: Case, task: Task) -> Drawn:
        """Release once, and look what is lost and who is named."""
        assert isinstance(case, Opened)
        noise = Noise()
        data = case.rows(task, noise)
        return _figures(data, released(data, noise))

    def reference(self, case: Case) -> Reference:
        """See who is named in the true table, and by guessing."""
        assert isinstance(case, Opened)
        data = case.rows_alike(Noise())
        told = [item.name for item in (*case.policy.schema.public, *case.policy.schema.quasi_identifiers)]
        return Reference(
            # Of records that are alike in the true table one is named right on average.
            risk_without_privacy=len(set(codes_of(data, told).tolist())) / len(data),
            risk_of_chance=1 / len(data),
            cost_baseline=f"the true table of {len(data):,} records: nothing is lost, 100 % would tell nothing",
            says=(_COST, *sampled_says(case, self.tasks(case)[0])),
        )

    def tables(self, case: Case, point: Point) -> Mapping[str, Mapping[str, Any]]:
        """Give the mechanism of a point."""
        return mechanism_table(point)


_COST = (
    "Distortion is how much of its domain a record's intervals, sets or nodes span on average, all attributes counting "
    "alike; a record that was not released is lost altogether. Record linkage is of a released record all of whose "
    "quasi-identifiers are known exactly."
)


def _candidates(case: Opened) -> Iterator[Candidate]:
    quick = case.asked.quick
    ks = [k for k in (QUICK_KS if quick else KS) if k <= case.num_measured // 2]
    for k in ks:
        yield Candidate(name=f"utility-clusters k={k}", mechanism="utility-clusters", parameters={"k": k})
    for most in QUICK_DISTORTIONS if quick else DISTORTIONS:
        parameters = {"max_distortion": most}
        yield Candidate(
            name=f"utility-clusters distortion={most:g}", mechanism="utility-clusters", parameters=parameters
        )
    for k in ks:
        yield Candidate(name=f"full-domain k={k}", mechanism="full-domain", parameters={"k": k})
    if len(case.policy.schema.quasi_identifiers) <= MOST_ATTRIBUTES:
        for k in ks:
            yield Candidate(name=f"partition k={k}", mechanism="partition", parameters={"k": k})
    for epsilon in QUICK_EPSILONS if quick else EPSILONS:
        yield Candidate(
            name=f"sampled-lattice epsilon={epsilon:g}, delta={DELTA:g}",
            mechanism="sampled-lattice",
            parameters={"epsilon": epsilon, "delta": DELTA, "epsilon_choice": epsilon / 4},
        )


def _figures(data: Dataset, publication: Publication) -> Drawn:
    """Measure a release by what its owner knows: how many records are not in it is told to nobody else."""
    from dunnage.auditing import attacks
    from dunnage.auditing.inside import Case as AuditCase
    from dunnage.auditing.rides import Distortion
    from dunnage.auditing.sight import Sight

    release, key = publication
    if not len(release):
        raise NoPlanError("nothing was released, so that everything is lost.")
    sight = Sight.of(release)
    names = list(sight.names)
    inside = Distortion.of(sight).by_generalisation(dict.fromkeys(names, 1 / len(names)))
    lost = 1 - len(release) / len(data)
    case = AuditCase.of(sight, data, key)
    linkage = attacks.record_linkage(case.sight, case.known).probability[case.released]
    return Drawn(
        cost=inside + (1 - inside) * lost,
        risk=float(linkage.mean()),
        cost_step=1 / len(data),
        risk_step=1 / len(data),
        cost_least=0.0,
        figures={
            "records": float(len(data)),
            "not released": lost,
            "distortion by generalisation": inside,
            "worst record linkage": float(linkage.max()),
            "classes": float(len(sight.sizes)),
        },
    )


def goal_for(asked: Asked) -> Goal:
    """Return the goal, whatever the policy is about; it refuses what it cannot measure."""
    return Lost()
