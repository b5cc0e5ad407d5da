# SPDX-License-Identifier: Apache-2.0
"""Goals on an owner's rows: trucks, distortion, and the error of numbers.

============  =========================================================  ============================================
goal          cost                                                       risk
============  =========================================================  ============================================
trucks        trucks above the best plan on the true weights             naming a package's truck
distortion    total distortion of a table, all attributes alike          record linkage
error         mean absolute error of a number, in mean values            record linkage
============  =========================================================  ============================================

Distortion is one measure for all mechanisms, whatever they minimise themselves: a record that was not released is lost
completely. Record linkage is the chance to name the row of a released record if all its values are known.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from dunnage.advising.frontier import DATA, GENERATED, OVERLOADED, PROVEN, SAMPLE, Failure, Point, Table
from dunnage.advising.sweep import AdviceRequest, Candidate, Candidates, Draw, Reference, Subject, allowed, words
from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.classes import ClassesTruth, ClassesView, record_linkage
from dunnage.auditing.noisy import NoisyTruth, NoisyView
from dunnage.auditing.plans import TruePacking, group_codes, pack_truth
from dunnage.auditing.rides import ClassDistortion
from dunnage.errors import NoPlanError, ParameterError, Refusal
from dunnage.exact import plain
from dunnage.ledger import Ledger
from dunnage.mechanisms import MECHANISMS
from dunnage.mechanisms.base import Mechanism
from dunnage.mechanisms.clusters import UtilityClusters
from dunnage.mechanisms.full_domain import FullDomain
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.mechanisms.size_profile import SizeProfile
from dunnage.model.domains import Numeric
from dunnage.model.guarantees import Guarantee, KAnonymity, Neighbours
from dunnage.model.policy import Policy
from dunnage.model.schema import Role
from dunnage.noise import arrays as noise_arrays
from dunnage.noise.source import Noise
from dunnage.planning.linkage import truck_linkage
from dunnage.planning.models import Model, Sealed, Standard, Stochastic
from dunnage.planning.packing import pack
from dunnage.planning.trucks import Truck, parse_capacities
from dunnage.publication import Publication
from dunnage.publishing import mechanism_of
from dunnage.publishing import promise as promise_of
from dunnage.samples.shape import like
from dunnage.settle import apply
from dunnage.tables.dataset import Dataset, load

KS, QUICK_KS = (2, 3, 5, 10, 20, 50), (2, 5, 20)
EPSILONS, QUICK_EPSILONS = (0.5, 1, 2, 4, 8), (1, 4)
SAMPLED_EPSILONS, QUICK_SAMPLED_EPSILONS, DELTA = (1, 2, 4), (2,), 1e-3
DISTORTIONS, QUICK_DISTORTIONS = (0.05, 0.1, 0.2, 0.3), (0.1,)
LAWS = ("laplace", "piecewise")
NUM_RANGES = 4
MAX_RECORDS = 1500  # generated records of one draw by default: a draw takes some seconds, and a frontier has many draws
MAX_ALONG_ONE, MAX_ALONG_SEVERAL = 200_000, 10_000
"""Records that a fast mechanism is measured on without a plan: with one quasi-identifier, and with several."""
MAX_SIMPLE = 100_000  # packages with classes that can be packed by their upper bounds or means in some seconds
MAX_WITH_SEVERAL = 1000  # generated packages of one draw with several quantities
MAX_ALL = 10_000  # records that are measured as a whole under k-anonymity, where a draw takes long: more are a sample
PROFILE_RISK = 0.05  # chance that some package has no slot
MAX_IN_A_TRUCK = 12  # packages in a truck up to which sealed and certified plans with several quantities are tried
MAX_ATTRIBUTES = 4  # A partition by more attributes than this takes too long to measure repeatedly
MIN_SEALED, MANY_PACKAGES = 5, 1000
"""With smaller classes a good sealed plan takes long: for many packages, or in a quick run, none is tried."""
SEALED_SECONDS = 12.0
"""With less time a sealed plan reveals more: the measurement must not depend on how busy the machine is."""
ESTIMATED_REACH, SEALED_REACH = 0.2, 0.05
"""Shares by which truck linkage may be off: if it was estimated from some repairs or fills, and for a sealed plan."""
_MAX_PAIRS = 2_000_000
"""Pairs of records and rows that one attack compares; if there are more, only some records are attacked."""
# Any mechanism will do to read a policy with a blank one; advice chooses it later.
_ANY_MECHANISM: Table = {"name": Partition.name, "k": 2}
_SEARCHED = "max_distortion"
"""The parameter that makes a mechanism search for classes again and again, in all groups together."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSubject(Subject):
    data: Dataset = field(repr=False)
    policy: Policy  # the policy of the rows
    rooms: Mapping[str, float] = field(default_factory=dict)  # capacity of a truck by quantity; empty without trucks

    @property
    def several(self) -> bool:
        return len(self.rooms) > 1

    @property
    def max_records(self) -> int:
        """Largest number of generated records of a draw: fewer if several quantities make packing slow."""
        if self.rooms:
            return self.request.size or (MAX_WITH_SEVERAL if self.several else MAX_RECORDS)
        several = len(self.policy.schema.quasi_identifiers) > 1
        return self.request.size or (MAX_ALONG_SEVERAL if several else MAX_ALONG_ONE)

    @property
    def max_compared(self) -> int:
        """Largest number of true records to compare with: as many as most candidates are measured on."""
        if self.rooms:
            return self.request.size or (MAX_ALL if self.several else MAX_SIMPLE)
        return self.max_records

    def max_of(self, candidate: Candidate) -> int:
        """Largest number of records for a candidate: under k-anonymity all of them, unless that takes minutes."""
        if self.request.size is not None:
            return self.request.size
        whole = candidate.guarantee.startswith(KAnonymity.model) and candidate.on != GENERATED
        if self.rooms:
            simple = candidate.plan.get("name") in (UPPER, MEAN)
            simple &= "statistic" in MECHANISMS[candidate.mechanism].model_fields
            return self.max_compared if simple else MAX_ALL if whole else self.max_records
        fast = MECHANISMS[candidate.mechanism].fast and _SEARCHED not in candidate.parameters
        return self.max_records if fast else min(self.max_records, MAX_ALL if whole else MAX_RECORDS)

    @property
    def num_measured(self) -> int:
        return min(len(self.data), self.max_compared)

    @cached_property
    def groups(self) -> tuple[IntArray, ...]:
        """Number of the group of each row: groups that are measured as a whole if possible, and those inside them."""
        public = group_codes(self.data, [item.name for item in self.policy.schema.public])
        return (public,) if self.request.by is None else (group_codes(self.data, [self.request.by]), public)

    def rows(self, candidate: Candidate, noise: Noise) -> Dataset:
        """Return the true or generated rows to measure a candidate on, under its policy."""
        policy, limit = candidate.under(self.policy), self.max_of(candidate)
        if candidate.on != GENERATED:
            return self.some_rows(policy, noise, limit)
        # The true number if that may be published, otherwise about that; a part is enough if there are many.
        guarantee, num = promise_of(policy).guarantee, len(self.data)
        public = isinstance(guarantee, KAnonymity) or getattr(guarantee, "neighbours", None) is Neighbours.REPLACE_ONE
        size = self.request.size or min(num if public else round_to_one_digit(num), limit)
        return like(policy, size, noise=noise, data=self.data, largest=self.rooms)

    def rows_compared(self, noise: Noise) -> Dataset:
        if self.request.on != GENERATED:
            return self.some_rows(self.policy, noise, self.max_compared)
        size = self.request.size or min(self.num_measured, self.max_records)
        return like(self.policy, size, noise=noise, data=self.data, largest=self.rooms)

    def some_rows(self, policy: Policy, noise: Noise, limit: int) -> Dataset:
        """Return all rows, or if there are many, random whole groups; of a group that is too large, random rows."""
        records = np.sort(_some(np.arange(len(self.data)), self.groups, limit, noise))
        columns = {}
        for item in self.data.schema:
            if item.role is not Role.DROP:
                with contextlib.suppress(KeyError):  # identifiers of merged rows are kept only with their parts
                    columns[item.name] = self.data.column(item.name)
        return Dataset(
            table=pa.table(columns).take(pa.array(records)),
            policy=policy,
            period=self.data.period,
            source=self.data.source,
            parts=self.data.parts.take(records),
            original=self.data.original,
        )

    def kind_of_rows(self, candidate: Candidate) -> str:
        """Return the kind of true rows for a candidate: data if its classes are those of all rows."""
        limit = self.max_of(candidate)
        if len(self.data) <= limit:
            return DATA
        apart = MECHANISMS[candidate.mechanism].apart and _SEARCHED not in candidate.parameters
        return DATA if apart and takes_whole_groups(self.groups, limit) else SAMPLE


def _read_rows(request: AdviceRequest, goal: str) -> RowSubject:
    if request.base.for_devices:
        raise ParameterError(f"the policy is for devices, so the goal cannot be {goal}. Use --goal error.")
    policy = request.base.policy(_ANY_MECHANISM)
    if policy.schema.trip is not None:
        raise ParameterError(f"the policy counts trips, so the goal cannot be {goal}. Use --goal shuttles.")
    if isinstance(request.data, Dataset):
        data = request.data
        if data.schema != policy.schema:
            raise ParameterError("the rows were read under another policy. Give that policy, or the path of the rows.")
    else:
        data = load(request.data, policy, period=request.period)
    data.require_rows()
    public, digest = request.size is not None, check_digest(data, policy)
    return RowSubject(request=request, data=data, digest=digest, public_size=public, policy=policy)


def check_digest(data: Dataset, policy: Policy) -> str:
    """Return a digest of private rows and of the files that their policy names, to recognise them again."""
    return hashlib.sha256(f"{data.keyed_digest(b'advise')} {sorted(policy.files.items())}".encode()).hexdigest()


def takes_whole_groups(groups: Sequence[IntArray], limit: int) -> bool:
    """Whether ``some_rows`` always takes whole groups, or whole groups inside one."""
    sizes = np.unique(groups[0], return_counts=True)[1]
    smallest, largest = int(sizes.min()), int(sizes.max())
    if largest <= limit and (2 * largest <= limit or 2 * smallest >= limit):
        return True
    # More than half of the rows come from inside a group that is too large.
    return any(4 * int(np.unique(inner, return_counts=True)[1].max()) <= limit for inner in groups[1:])


def _some(rows: IntArray, groups: Sequence[IntArray], limit: int, noise: Noise) -> IntArray:
    """Choose random whole groups, as many as fit; if these are few, also rows of the next one."""
    if len(rows) <= limit:
        return rows
    if not groups:
        return rows[noise_arrays.permutation(noise, len(rows))[:limit]]
    place, sizes = np.unique(groups[0][rows], return_inverse=True, return_counts=True)[1:]
    order = noise_arrays.permutation(noise, len(sizes))
    fitting = int(np.searchsorted(np.cumsum(sizes[order]), limit, side="right"))
    whole = rows[np.isin(place.reshape(-1), order[:fitting])]
    if 2 * len(whole) >= limit:
        return whole
    following = rows[place.reshape(-1) == order[fitting]]
    return np.concatenate([whole, _some(following, groups[1:], limit - len(whole), noise)])


def round_to_one_digit(number: int) -> int:
    """Round to one significant digit: 4000 for 4321."""
    scale: int = 10 ** max(len(str(number)) - 1, 0)
    return max(math.floor(number / scale + 0.5) * scale, 1)


def in_words(guarantee: Guarantee) -> str:
    """Write a guarantee in a few words: ``k-anonymity, k 5``."""
    values = ((name, getattr(guarantee, name, None)) for name in ("k", "epsilon", "delta", "beta"))
    numbers = [f"{name} {v if isinstance(v, int) else f'{float(v):.4g}'}" for name, v in values if v is not None]
    neighbours = getattr(guarantee, "neighbours", None)
    return ", ".join([guarantee.model, *numbers, *([str(neighbours)] if neighbours else [])])


def _checked(subject: RowSubject, candidates: Iterable[Candidate]) -> Candidates:
    def promised(candidate: Candidate) -> Candidate:
        promise = promise_of(candidate.under(subject.policy))
        candidate = replace(candidate, guarantee=in_words(promise.guarantee), basis=str(promise.basis))
        on, by_k = subject.request.on, isinstance(promise.guarantee, KAnonymity)
        if on == "auto":
            on = DATA if by_k else GENERATED
        on = GENERATED if on == GENERATED else subject.kind_of_rows(candidate)
        whole = by_k and on == DATA and len(subject.data) <= subject.max_of(candidate)
        return replace(candidate, on=on, exact=whole)

    return allowed(candidates, promised, by_mechanism=True)


def _ks(subject: RowSubject) -> list[int]:
    return [k for k in (QUICK_KS if subject.request.quick else KS) if k <= subject.num_measured // 2]


def _sampled_lattice(epsilon: float, plan: Table | None = None, ending: str = "") -> Candidate:
    parameters: Table = {"epsilon": epsilon, "delta": DELTA, "epsilon_choice": epsilon / 4}
    return Candidate.of(SampledLattice, f"epsilon={epsilon:g}, delta={DELTA:g}{ending}", parameters, plan)


def release_in_memory(data: Dataset, noise: Noise) -> Publication:
    """Release rows in memory, without the owner's ledger and the guards that publishing has: measuring is the point."""
    with Ledger(":memory:") as ledger:
        return mechanism_of(data.policy).release(data, ledger=ledger, noise=noise)


def _sampled_says(subject: RowSubject, candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Say which mechanisms were measured on only some of the rows, on how many, and what differs."""
    by_limit: dict[tuple[int, str], dict[str, None]] = {}
    for candidate in candidates:
        limit = subject.max_of(candidate)
        if len(subject.data) > limit:
            more = f" with {_SEARCHED}" if _SEARCHED in candidate.parameters else ""
            more += f" for {candidate.plan['name']} plans" if candidate.plan else ""
            by_limit.setdefault((limit, candidate.on), {})[candidate.mechanism + more] = None
    says = [
        words("more records", names=", ".join(names), limit=limit, taken=words(f"taken {on}"))
        for (limit, on), names in by_limit.items()
    ]
    return (*says, words("larger size")) if says else ()


# --- What a table loses ----------------------------------------------------------------------------------------------


def open_table(request: AdviceRequest) -> RowSubject:
    subject = _read_rows(request, "distortion")
    if not subject.policy.schema.quasi_identifiers:
        raise ParameterError(
            "the goal distortion needs a quasi-identifier. The policy has none. Give the columns that an outsider may "
            'know role = "quasi-identifier".'
        )
    return subject


def table_candidates(subject: RowSubject) -> Candidates:
    quick, ks = subject.request.quick, _ks(subject)
    candidates = [Candidate.of(UtilityClusters, f"k={k}", {"k": k}) for k in ks]
    for limit in QUICK_DISTORTIONS if quick else DISTORTIONS:
        candidates.append(Candidate.of(UtilityClusters, f"distortion={limit:g}", {_SEARCHED: limit}))
    few = len(subject.policy.schema.quasi_identifiers) <= MAX_ATTRIBUTES
    for kind in (FullDomain, Partition) if few else (FullDomain,):
        candidates += [Candidate.of(kind, f"k={k}", {"k": k}) for k in ks]
    epsilons = QUICK_SAMPLED_EPSILONS if quick else SAMPLED_EPSILONS
    return _checked(subject, [*candidates, *map(_sampled_lattice, epsilons)])


def measure_table(subject: RowSubject, candidate: Candidate) -> Draw:
    """Measure a release with the owner's knowledge: nobody else sees how many records are not in it."""
    noise = Noise()
    data = subject.rows(candidate, noise)
    release, key = release_in_memory(data, noise)
    if not len(release):
        raise NoPlanError("nothing was released, so everything is lost.")
    view = ClassesView.of(release)
    inside = ClassDistortion.of(view).by_generalisation(dict.fromkeys(view.names, 1 / len(view.names)))
    case, lost = ClassesTruth.of(view, data, key), 1 - len(release) / len(data)
    linkage = record_linkage(view, case.known).probability[case.released]
    step = 0.0 if candidate.exact else 1 / len(data)
    return Draw(
        cost=inside + (1 - inside) * lost,
        risk=float(linkage.mean()),
        cost_step=step,
        risk_step=step,
        min_cost=0.0,
        num_records=len(data),
        figures={
            "records": float(len(data)),
            "not released": lost,
            "distortion by generalisation": inside,
            "worst record linkage": float(linkage.max()),
            "classes": float(len(view.sizes)),
        },
    )


def table_reference(subject: RowSubject) -> Reference:
    data, schema = subject.rows_compared(Noise()), subject.policy.schema
    shown = [item.name for item in (*schema.public, *schema.quasi_identifiers)]
    return Reference(
        # Of records that are alike in the true table, one is named right on average.
        risk_without_privacy=len(set(group_codes(data, shown).tolist())) / len(data),
        risk_of_chance=1 / len(data),
        cost_baseline=f"the true table of {len(data):,} records: nothing is lost; 100 % would reveal nothing",
        says=(words("distortion"), *_sampled_says(subject, table_candidates(subject)[0])),
    )


# --- Errors of numbers -----------------------------------------------------------------------------------------------


def open_numbers(request: AdviceRequest) -> RowSubject:
    subject = _read_rows(request, "error")
    if not any(isinstance(item.domain, Numeric) for item in subject.policy.schema.quasi_identifiers):
        raise ParameterError(
            "the goal error needs a quasi-identifier of kind numeric. The policy has none. Give one, or use "
            "--goal distortion."
        )
    return subject


def number_candidates(subject: RowSubject) -> Candidates:
    quick = subject.request.quick
    classes = [
        Candidate.of(kind, f"k={k}", {"k": k, "statistic": "mean"})
        for k in _ks(subject)
        for kind in (Partition, FullDomain)
    ]
    if subject.policy.schema.person is not None:
        classes += [Candidate.of(UtilityClusters, f"k={k}", {"k": k}) for k in _ks(subject)]
    noisy = [
        Candidate.of(NoisyValues, f"{law} epsilon={epsilon:g}", {"epsilon": float(epsilon), "law": law})
        for law in (LAWS[:1] if quick else LAWS)
        for epsilon in (QUICK_EPSILONS if quick else EPSILONS)
    ]
    return _checked(subject, [*classes, *noisy])


def measure_numbers(subject: RowSubject, candidate: Candidate) -> Draw:
    data = subject.rows(candidate, noise := Noise())
    draw = row_errors(release_in_memory(data, noise), data)
    return replace(draw, cost_step=0.0, risk_step=0.0) if candidate.exact else draw


def row_errors(publication: Publication, data: Dataset) -> Draw:
    errors: dict[str, float] = {}
    if publication.release.noisy:
        noisy = NoisyTruth.of(NoisyView.of(publication.release), data, publication.key)
        if noisy.view.rows is None:
            raise Refusal("the release does not state the law of its noise, so its risk is not known.")
        for name, truth in zip(noisy.view.domains, noisy.values, strict=True):
            errors[name] = _relative(noisy.view.column(name) - truth, truth)
        risk = float(noisy.attack(noisy.some(_MAX_PAIRS)).hit.mean())
    else:
        case = ClassesTruth.of(ClassesView.of(publication.release), data, publication.key)
        if not case.released.any():
            raise Refusal("nothing was released.")
        for axis, shown in enumerate(case.view.attributes):
            if shown.numeric is not None:
                guesses = (shown.lower + shown.upper) / 2 if shown.means is None else shown.means
                truth = case.known.low[axis, case.released]
                errors[shown.name] = _relative(guesses[case.of_record[case.released]] - truth, truth)
        risk = float(record_linkage(case.view, case.known).probability[case.released].mean())
    return Draw(
        cost=float(np.mean(list(errors.values()))),
        risk=risk,
        cost_step=1 / len(data),
        min_cost=0.0,
        risk_step=1 / len(data),
        num_records=len(data),
        figures={f"error of {name}": error for name, error in errors.items()},
    )


def _relative(errors: FloatArray, truth: FloatArray) -> float:
    """Return the mean absolute error, relative to the mean absolute true value."""
    mean = float(np.abs(truth).mean())
    return float(np.abs(errors).mean()) / (mean or 1.0)


def numbers_reference(subject: RowSubject) -> Reference:
    return Reference(
        risk_without_privacy=1.0,
        risk_of_chance=1 / subject.num_measured,
        cost_baseline="the true numbers",
        says=(words("numbers"), *_sampled_says(subject, number_candidates(subject)[0])),
    )


# --- Trucks ----------------------------------------------------------------------------------------------------------

UPPER, MEAN, CERTIFIED, SEALED = "upper bounds", "mean", "certified 95 %", "sealed"
# How a class is summarised for each plan, the options of pack, and its model.
_STATISTICS = {UPPER: "bounds", MEAN: "mean", CERTIFIED: "multiset", SEALED: "multiset"}
_PLANS: Mapping[str, Table] = {
    UPPER: {"model": "standard", "statistic": "upper"},
    MEAN: {"model": "standard", "statistic": "mean"},
    CERTIFIED: {"model": "stochastic", "risk": 0.05},
    SEALED: {"model": "sealed"},
}
_MODELS: Mapping[str, Model] = {
    UPPER: Standard(statistic="upper"),
    MEAN: Standard(statistic="mean"),
    CERTIFIED: Stochastic(risk=Fraction(1, 20)),
    SEALED: Sealed(),
}


def open_trucks(request: AdviceRequest) -> RowSubject:
    if not request.capacity:
        raise ParameterError(
            "the goal trucks needs the capacity of a truck. Got none. Give for example --capacity 500kg."
        )
    subject = _read_rows(request, "trucks")
    schema = subject.policy.schema
    quantities = [item for item in schema.quasi_identifiers if isinstance(item.domain, Numeric)]
    if not quantities:
        raise ParameterError(
            "the goal trucks needs a numeric quasi-identifier to pack. The policy has none. Give the column of weights "
            'role = "quasi-identifier", kind = "numeric" and a domain.'
        )
    public = [item.name for item in schema.public]
    if request.by is not None and request.by not in public:  # the planner will not see it
        remedy = f"Use one of {', '.join(public)}." if public else 'Give one role = "public" in the policy.'
        raise ParameterError(f"by must name a public column of the policy. Got {request.by!r}. {remedy}")
    rooms = parse_capacities(request.capacity, {item.name: item.numeric.unit for item in quantities})
    subject = replace(subject, rooms=rooms)
    if heavy := int((_amounts(subject, subject.data) > list(rooms.values())).any(axis=1).sum()):
        raise ParameterError(f"{heavy:,} of the packages do not fit the truck. Give a larger --capacity.")
    return subject


def truck_candidates(subject: RowSubject) -> Candidates:
    quick, several, ks = subject.request.quick, subject.several, _ks(subject)
    if several:  # they take longer to pack
        ks = ks[1:] if quick else ks[::2]
    min_sealed = MIN_SEALED if quick or subject.num_measured >= MANY_PACKAGES else 0
    classes: list[tuple[type[Mechanism], int, str]] = [
        (Partition, k, plan)
        for k in ks
        for plan in ((UPPER, MEAN, SEALED) if quick else (UPPER, MEAN, CERTIFIED, SEALED))
        if plan != SEALED or k >= min_sealed
    ]
    coarse = ks if several and not quick else ks[::2]
    classes += [(FullDomain, k, plan) for k in coarse for plan in (UPPER, SEALED)]
    made = [
        Candidate.of(kind, f"k={k}{_ending(plan)}", {"k": k, "statistic": _STATISTICS[plan]}, _plan(plan))
        for kind, k, plan in classes
    ]
    if subject.policy.schema.person is not None:  # the mechanisms above count records, and are refused
        made += [
            Candidate.of(UtilityClusters, f"k={k}{_ending(plan)}", {"k": k}, _plan(plan))
            for k in ks
            for plan in (UPPER, SEALED)
            if plan != SEALED or k >= min_sealed
        ]
    epsilons: Sequence[float] = QUICK_EPSILONS if quick else EPSILONS[::2] if several else EPSILONS
    plans = (MEAN,) if quick else (UPPER, MEAN)
    noisy: list[tuple[type[Mechanism], float, str, Table]] = [
        (NoisyValues, epsilon, law, {"law": law})
        for epsilon in epsilons
        for law in (LAWS if not quick and epsilon in QUICK_EPSILONS else LAWS[:1])
    ]
    for epsilon in epsilons:
        ranges = _ranges(subject, private=not quick and epsilon in QUICK_EPSILONS)
        noisy += [(NoisyClusters, epsilon, label, table) for label, table in ranges]
    for kind, epsilon, label, table in noisy:
        for plan in plans:
            name = f"epsilon={epsilon:g}, {label}{_ending(plan)}"
            made.append(Candidate.of(kind, name, {"epsilon": epsilon, **table}, _plan(plan)))
    room: Table = {"risk": PROFILE_RISK}
    if subject.rooms.keys() == {item.name for item in subject.policy.schema.quasi_identifiers}:
        room = {**room, "capacity": dict(subject.rooms) if several else next(iter(subject.rooms.values()))}
    written = subject.request.base.document.get("mechanism")
    if isinstance(written, Mapping) and "expected" in written:  # only the owner can guess it in public
        room = {**room, "expected": written["expected"]}
    made += [
        Candidate.of(SizeProfile, f"epsilon={epsilon:g}{_ending(UPPER)}", {"epsilon": epsilon, **room}, _plan(UPPER))
        for epsilon in epsilons
    ]
    made += [_sampled_lattice(epsilon, _plan(UPPER), _ending(UPPER)) for epsilon in epsilons if epsilon >= 1]
    candidates, failed = _checked(subject, made)
    # With several quantities and many packages in a truck, it takes minutes to compute how likely it fits.
    full = (_amounts(subject, subject.data).mean(axis=0) / list(subject.rooms.values())).max()
    if not several or full * MAX_IN_A_TRUCK >= 1:
        return candidates, failed
    slow = [CERTIFIED, SEALED]
    why = (
        "with several quantities and many packages in a truck, they take minutes to measure. Try one with dunnage pack."
    )
    left_out = [Failure(name=f"{kind} plans", why=why) for kind in slow[quick:]]
    return [one for one in candidates if one.plan["name"] not in slow], [*failed, *left_out]


def _plan(name: str) -> Table:
    return {"name": name, **_PLANS[name]}


def _ending(plan: str) -> str:
    return f", {plan} plan"


def _ranges(subject: RowSubject, *, private: bool) -> Iterator[tuple[str, Table]]:
    """Yield the ways to cut domains into ranges: at public borders, and if ``private`` at private quantiles."""
    domains = {
        item.name: item.numeric
        for item in subject.policy.schema.quasi_identifiers
        if isinstance(item.domain, Numeric) and item.numeric.resolution is not None
    }

    def alone(table: Table) -> JsonValue:
        """Write the list of a single attribute without its name."""
        return next(iter(table.values())) if len(table) == 1 else dict(table)

    borders = {name: cuts for name, domain in domains.items() if (cuts := ranges_of(domain, NUM_RANGES))}
    if borders and len(borders) == len(domains):
        yield f"{NUM_RANGES} public ranges", {"borders": alone(borders)}
    if private:
        shares: JsonValue = [number / NUM_RANGES for number in range(1, NUM_RANGES)]
        quantiles = alone(dict.fromkeys(domains, shares)) if domains else shares
        yield f"{NUM_RANGES} private ranges", {"quantiles": quantiles}


def ranges_of(domain: Numeric, number: int) -> list[JsonValue]:
    """Cut a domain with a grid into a number of ranges of about equal width; return the borders, if there are any."""
    assert domain.resolution is not None
    steps = sorted({domain.num_steps * part // number for part in range(1, number)} - {0})
    return [plain(domain.lower + step * domain.resolution) for step in steps if step < domain.num_steps]


def measure_trucks(subject: RowSubject, candidate: Candidate) -> Draw:
    """Publish, plan, apply and repair once, count the trucks, and compare with the best plan on the true weights."""
    noise = Noise()
    data = subject.rows(candidate, noise)
    everything = candidate.on != GENERATED and len(subject.data) <= subject.max_of(candidate)
    best = _best_of_data(subject) if everything else _packed(subject, data)
    release, key = release_in_memory(data, noise)
    if not len(release):
        raise NoPlanError("nothing was released, so there is nothing to plan on.")
    name = str(candidate.plan["name"])
    # Time limit of a packing with one number for each package; most end before.
    seconds = 2.0 + subject.num_measured / (500 if subject.several else 1000)
    seconds = SEALED_SECONDS if name == SEALED else min(seconds, 4.0 if subject.several else 6.0)
    request = subject.request
    plan = pack(release, capacity=request.capacity, by=request.by, model=_MODELS[name], seconds=seconds)
    done = apply(plan, data, release, key, repair=True, noise=noise)
    if not done.feasible:
        raise NoPlanError("the plan overloads trucks, and no repair is possible in time. Use larger trucks.")
    linkage = done.truck_linkage
    if linkage is None:
        raise NoPlanError("truck linkage is not known, because the release does not state the law of its noise.")
    # Packages that were not released are in no plan, and need trucks too.
    num_rest = done.unplanned.count - data.num_left_out
    trucks = len(np.unique(done.bin_of_row[done.bin_of_row >= 0]))
    if num_rest:
        planned = data.parts.records_of(done.loading.column("source_row").to_numpy())
        trucks += int(_packed(subject, data, np.setdiff1d(np.arange(len(data)), planned)).cost)
    optimum = min(int(best.cost), trucks)
    sure = best.cost == best.bound and done.plan.objective == done.plan.bound
    same = everything and done.plan_feasible and not num_rest and sure
    reach = SEALED_REACH * linkage.mean if name == SEALED else 0.0
    if linkage.kind == "estimate" and not release.noisy:  # for noise it is computed from the law
        reach = ESTIMATED_REACH * linkage.mean
    return Draw(
        cost=trucks / optimum - 1,
        risk=linkage.mean,
        cost_step=0.0 if same else 1 / optimum,
        risk_step=0.0 if same else 1 / len(data),
        risk_reach=reach,  # how far it may be off on another machine, where a search has a time limit
        min_cost=0.0,
        num_records=len(data),
        figures={
            "trucks": float(trucks),
            "optimum": float(optimum),
            PROVEN: float(optimum == best.bound),
            "planned trucks": float(done.plan.num_bins),
            OVERLOADED: 1 - done.bins_feasible,
            "packages moved": float(done.repair.moved if done.repair else 0),
            "packages outside the plan": float(num_rest),
            "worst truck linkage": linkage.worst,
            "packages": float(len(data)),
        },
    )


def truck_reference(subject: RowSubject) -> Reference:
    data, schema = subject.rows_compared(Noise()), subject.policy.schema
    best = _packed(subject, data)
    public = [item.name for item in schema.public]
    shown = [*public, *(item.name for item in schema.quasi_identifiers)]
    where = "generated packages" if subject.request.on == GENERATED else f"{len(data):,} packages"
    sure = "proven" if best.cost == best.bound else f"not proven: at least {best.bound}"
    return Reference(
        risk_without_privacy=truck_linkage(group_codes(data, shown), best.bin_of_row).mean,
        risk_of_chance=truck_linkage(group_codes(data, public), best.bin_of_row).mean,
        cost_baseline=f"{best.cost} trucks for {where}: the best plan on the true weights ({sure})",
        says=(
            words("trucks"),
            words("searches", sealed=SEALED_REACH, estimated=ESTIMATED_REACH),
            *_sampled_says(subject, truck_candidates(subject)[0]),
        ),
    )


def trucks_help(subject: RowSubject, points: Sequence[Point]) -> str:
    return words("help trucks")


def pack_command(subject: RowSubject, point: Point) -> str:
    request = subject.request
    options = [part for name, value in point.plan.items() if name != "name" for part in (f"--{name}", str(value))]
    capacity = [part for text in request.capacity for part in ("--capacity", text)]
    by = ["--by", request.by] if request.by else []
    return shlex.join(["dunnage", "pack", "RELEASE", *capacity, *by, *options, "-o", "PLAN"])


def _amounts(subject: RowSubject, data: Dataset) -> FloatArray:
    return np.column_stack([data.numbers(name) for name in subject.rooms])


@lru_cache(maxsize=2)
def _best_of_data(subject: RowSubject) -> TruePacking:
    return _packed(subject, subject.data)


def _packed(subject: RowSubject, data: Dataset, records: IntArray | None = None) -> TruePacking:
    """Pack packages, or some of them, within a time limit: with several quantities more time rarely proves more."""
    records = np.arange(len(data)) if records is None else records
    seconds = 2.0 if subject.several else min(2.0 + subject.num_measured / 1000, 6.0)
    return pack_truth(
        _amounts(subject, data)[records],
        list(subject.rooms),
        [Truck(name="truck", capacity=dict(subject.rooms))],
        group_codes(data, [subject.request.by], records),
        deadline=time.monotonic() + seconds,
    )
