# SPDX-License-Identifier: Apache-2.0
"""Li, Erkin, Lagendijk 2022: the sound forms beside the published ones, attacks, plan-level risks, more quantities.

None of it is in the paper. Each form states its model: what is kept, and between which datasets. Noise is seeded so
that figures can be repeated; the weights are nobody's.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import dunnage as dn
from dunnage.arrays import FloatArray, IntArray
from dunnage.exact import exact
from dunnage.kernels.bins.certified import BinKind, pack_vectors
from dunnage.kernels.bins.chances import clopper_pearson
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues, published_noise, rank_clusters
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.noise.sampling import sampling_epsilon
from dunnage.planning.linkage import NoisyRows
from dunnage.samples import draw_weights
from papers.hoogervorst2019 import Setting
from papers.li2022_naive import naive_packing
from papers.li2022_runs import (
    BETA,
    CHOICE,
    CLUSTERS,
    DOUBLING,
    HARD,
    LATTICE,
    MOST,
    SHARES,
    TABLE_1,
    TABLE_2,
    Disclosed,
    Effort,
    Job,
    Judge,
    dataset_of,
    published,
    published_sizes,
    sampled_lattice,
    seed_of,
    stated,
    whole_sample,
)
from papers.measuring import Run, column_of, mean_sd

CONFIDENCE = Fraction(7, 10)  # the paper's recommendation
NOT_PRIVATE = "none (claimed: epsilon within clusters)"
LAW_DRAWS = 100_001

# Forms of noise at equal epsilon


@dataclass(frozen=True, eq=False)
class Noisy:
    """Noisy weights: the record, value and interval of each row, and how long it took."""

    record: IntArray
    value: FloatArray
    lower: FloatArray
    upper: FloatArray
    seconds: float


@dataclass(frozen=True)
class Form:
    """A way to add noise: its name, the model of what it keeps, and how it is drawn."""

    name: str
    model: str
    draw: Callable[[Judge, Fraction], Noisy]


def public_borders(setting: Setting) -> list[int]:
    """Return where the law of a setting has its shares: public, as the law is."""
    drawn = draw_weights(replace(setting.law, size=LAW_DRAWS), np.random.default_rng(0))
    return np.rint(np.quantile(drawn, [float(share) for share in SHARES])).astype(np.int64).tolist()


def _published_form(shares: Sequence[Fraction]) -> Callable[[Judge, Fraction], Noisy]:
    def draw(judge: Judge, epsilon: Fraction) -> Noisy:
        law, weights = judge.job.setting.law, judge.weights.astype(np.int64)
        seed = seed_of((*judge.seed, len(shares), int(10 * epsilon)))
        start = time.monotonic()
        ends = published_sizes(law, weights, shares, epsilon, CONFIDENCE, seed)
        return Noisy(np.arange(len(weights)), *ends, time.monotonic() - start)

    return draw


def _sound_form(make: Callable[[Setting, Fraction], Any]) -> Callable[[Judge, Fraction], Noisy]:
    def draw(judge: Judge, epsilon: Fraction) -> Noisy:
        mechanism = make(judge.job.setting, epsilon)
        data = dataset_of(judge.job.setting.law, judge.weights, mechanism)
        found = published(mechanism, data, (*judge.seed, int(10 * epsilon)))
        known = found.release.uncertain("weight")
        assert known.nominal is not None
        return Noisy(found.record, known.nominal, known.lower, known.upper, found.seconds)

    return draw


def clusters(setting: Setting, epsilon: Fraction) -> NoisyClusters:
    return NoisyClusters(epsilon=epsilon, borders=public_borders(setting), confidence=CONFIDENCE)


def quantiles(setting: Setting, epsilon: Fraction) -> NoisyClusters:
    return NoisyClusters(epsilon=epsilon, quantiles=SHARES, confidence=CONFIDENCE)


def values(law: str) -> Callable[[Setting, Fraction], NoisyValues]:
    return lambda setting, epsilon: NoisyValues(epsilon=epsilon, confidence=CONFIDENCE, law=law)


FORMS = (
    Form("algorithm 2, as published", NOT_PRIVATE, _published_form(SHARES)),
    Form("clusters with public borders", "within-cluster, replace-one", _sound_form(clusters)),
    Form("clusters with private borders", "within-published-borders, replace-one", _sound_form(quantiles)),
    Form("Laplace by the range of the data, as published", NOT_PRIVATE, _published_form(())),
    Form("Laplace by the public domain", "dp, replace-one", _sound_form(values("laplace"))),
    Form("piecewise by the public domain", "dp, replace-one", _sound_form(values("piecewise"))),
)


@dataclass(frozen=True)
class FormJob:
    job: Job


def measure_forms(compared: FormJob) -> list[Run]:
    """Draw every form at every epsilon for one draw of a setting, plan on upper ends, and judge.

    Widths of intervals and errors are shares of the public domain.
    """
    job = compared.job
    judge, span = Judge.of(job), job.setting.law.high - job.setting.law.low
    found = []
    for epsilon, form in itertools.product(job.effort.beside_epsilons, FORMS):
        disclosed = form.draw(judge, exact(epsilon))
        truth = judge.weights[disclosed.record]
        run = judge.run(epsilon, Disclosed(disclosed.record, disclosed.upper, form.name, disclosed.seconds))
        same = ("setting", "instance", "ratio", "bins_feasible", "plan_feasible")
        found.append(
            Run(
                **{name: getattr(run, name) for name in same},
                epsilon=epsilon,
                form=form.name,
                model=form.model,
                covered=float(np.mean((disclosed.lower <= truth) & (truth <= disclosed.upper))),
                width=float(np.mean(disclosed.upper - disclosed.lower)) / span,
                error=float(np.mean(np.abs(disclosed.value - truth))) / span,
                anonymise_seconds=disclosed.seconds,
            )
        )
    return found


def form_jobs(effort: Effort) -> list[FormJob]:
    return [FormJob(Job(CLUSTERS, setting, i, effort)) for setting in TABLE_2[:-1] for i in range(effort.beside_runs)]


def form_summary(found: Sequence[Run], *, by_setting: bool) -> list[dict[str, object]]:
    columns = ("ratio", "bins_feasible", "plan_feasible", "covered", "width", "error")
    rows: list[dict[str, object]] = []
    settings = dict.fromkeys(one.setting for one in found) if by_setting else {"all": None}
    epsilons = dict.fromkeys(one.epsilon for one in found)
    for setting, epsilon, form in itertools.product(settings, epsilons, FORMS):
        own = [o for o in found if (o.epsilon, o.form) == (epsilon, form.name) and setting in ("all", o.setting)]
        row: dict[str, object] = {"setting": setting} if by_setting else {}
        row |= {"epsilon": epsilon, "form": form.name, "model": form.model}
        row |= {column: mean_sd(column_of(own, column))[0] for column in columns}
        rows.append(row)
    return rows


Attack = Callable[[Setting, FloatArray, Fraction, int], tuple[FloatArray, FloatArray | None]]
"""Releases weights once; returns the probabilities of eq. 30 and the corrected ones, where row i is record i's."""


def _attack_published(
    setting: Setting, weights: FloatArray, epsilon: Fraction, number: int
) -> tuple[FloatArray, FloatArray | None]:
    """Attack algorithm 2 as published: intervals show each row's scale; how clusters hang on weights is not known."""
    whole = weights.astype(np.int64)
    noise = dn.Noise(seed=seed_of((30, number)))
    disclosed, _ = published_noise(whole, SHARES, epsilon=epsilon, confidence=Fraction(0), noise=noise)
    order, scale = np.argsort(whole, kind="stable"), np.empty(len(whole))
    for cluster in rank_clusters(len(whole), SHARES):
        scale[order[cluster]] = np.ptp(whole[order[cluster]]) / float(epsilon)
    # A cluster without range is printed as it is: its row has a weight, and no other.
    away, known = np.abs(disclosed - whole[:, None]), np.maximum(scale, LEAST_SCALE)
    density = np.tanh(1 / (2 * known)) * np.exp(-away / known)
    return density / density.sum(axis=1, keepdims=True), None


def row_posterior(
    release: dn.Release,  # a noisy release that states its laws
    truths: Mapping[str, Any],  # true values of the records by noisy column
    stratum: IntArray | None = None,
    *,
    as_printed: bool = False,  # by eq. 30 as printed, which is not a valid probability
) -> FloatArray:
    """Return the probability that each released row belongs to each record with known true values."""
    rows = NoisyRows.of(release, None if stratum is not None else np.zeros(len(release), dtype=np.int64))
    assert rows is not None  # the certificate states the law of the noise
    steps = rows.steps_of(truths)
    given = np.zeros(steps.shape[1], dtype=np.int64) if stratum is None else stratum
    posterior = np.zeros((steps.shape[1], len(release)))
    for part in rows.segments(steps, rows.group_of(steps, given), as_printed=as_printed):
        posterior[np.repeat(part.truths, part.lengths), rows.rows[part.rows]] = part.probabilities
    return posterior


def _attack_sound(make: Callable[[Setting, Fraction], Any]) -> Attack:
    def attack(
        setting: Setting, weights: FloatArray, epsilon: Fraction, number: int
    ) -> tuple[FloatArray, FloatArray | None]:
        mechanism = make(setting, epsilon)
        found = published(mechanism, dataset_of(setting.law, weights, mechanism), (30, number))
        truths = {"weight": weights[found.record]}
        return row_posterior(found.release, truths, as_printed=True), row_posterior(found.release, truths)

    return attack


LEAST_SCALE = 0.01
ATTACKS: dict[str, tuple[str, Attack]] = {
    "algorithm 2, as published": (NOT_PRIVATE, _attack_published),
    "clusters with public borders": ("within-cluster, replace-one", _attack_sound(clusters)),
    "Laplace by the public domain": ("dp, replace-one", _attack_sound(values("laplace"))),
    "piecewise by the public domain": ("dp, replace-one", _attack_sound(values("piecewise"))),
}


def identification(form: str, effort: Effort, *, epsilon: Fraction = Fraction(1)) -> list[dict[str, object]]:
    """Attack releases of setting I: what eq. 30 states for its best guess and how often that is right; corrected too.

    Weights are drawn evenly from the grid of the public domain, which is the prior of the corrected form.
    """
    law, generator = TABLE_2[0].law, np.random.default_rng(30)
    model, attack = ATTACKS[form]
    # tried : releases, (stated, hit) of eq. 30 as printed, then of the corrected form
    tried = np.full((effort.attacks, 4), math.nan)
    for number in range(effort.attacks):
        weights = generator.integers(int(law.low), int(law.high) + 1, law.size).astype(np.float64)
        printed, corrected = attack(TABLE_2[0], weights, epsilon, number)
        tried[number, :2] = stated_and_hit(printed)
        tried[number, 2:] = (math.nan, math.nan) if corrected is None else stated_and_hit(corrected)
    names = ("eq. 30 states", "eq. 30 hits", "corrected states", "corrected hits")
    off = tried[:, 2] - tried[:, 3]
    return [
        {
            "epsilon": float(epsilon),
            "form": form,
            "model": model,
            **dict(zip(names, tried.mean(axis=0).tolist(), strict=True)),
            "corrected off by, standard errors": float(off.mean() / off.std(ddof=1) * math.sqrt(effort.attacks)),
            "guess without the release": 1 / law.size,
            "releases": effort.attacks,
        }
    ]


def stated_and_hit(posterior: FloatArray) -> tuple[float, float]:
    """Return what best guesses state and how often they are right, if row i is record i; ties count in part."""
    best = posterior.max(axis=1)
    ties = posterior >= best[:, None] * (1 - 1e-9)
    return float(best.mean()), float((np.diagonal(ties) / ties.sum(axis=1)).mean())


def lattice_identification(k: int, effort: Effort) -> list[dict[str, object]]:
    """Guess rows after algorithm 1: any that looks like the record's is as likely, if it was released at all."""
    setting = TABLE_1[0]
    size = round(setting.law.size / BETA)  # so that the sample is about as large as the setting
    law = replace(setting.law, size=size)
    mechanism = SampledLattice(k=k, beta=BETA, epsilon_choice=CHOICE, as_published=True)
    generator, num = np.random.default_rng([25, k]), max(effort.attacks // 10, 10)
    named, kept = [], []
    for number in range(num):
        data = dataset_of(law, draw_weights(law, generator), mechanism)
        found = published(mechanism, data, (25, k, number))
        sizes = (
            found.release.classes.column("size").to_numpy()
            if found.release.classes is not None
            else np.empty(0, dtype=np.int64)
        )
        # Each class of j rows has j records that are each named with 1/j: as many right guesses as classes.
        named.append(len(sizes))
        kept.append(np.repeat(1 / sizes, sizes))
    given = np.concatenate(kept)
    return [
        {
            "k": k,
            "beta": float(BETA),
            "beta/k": float(BETA) / k,
            "before the release": float(np.mean(named)) / size,
            "given that it is in it": float(given.mean()),
            "worst": float(given.max()),
            "1/k": 1 / k,
            "releases": num,
        }
    ]


def hierarchies(number: int, effort: Effort) -> list[dict[str, object]]:
    """Run algorithm 1 on one setting with other hierarchies: first widths of 4, and of parts of the domain."""
    setting = TABLE_1[number]
    hard, span = setting.numeral == HARD, setting.law.high - setting.law.low
    k = max(effort.hard_ks) if hard else 4
    one = replace(effort, ks=(k,), hard_ks=(k,))
    rows: list[dict[str, object]] = []
    for width in (DOUBLING, span / 16, span / 8, span / 4):
        judges = (Judge.of(Job(LATTICE, setting, i, one)) for i in range(effort.hard_runs if hard else effort.runs))
        found = [run for judge in judges for run in sampled_lattice(judge, doubling=width) if run.method == MOST]
        row: dict[str, object] = {"setting": setting.numeral, "k": k, "first width": width}
        for column in ("ratio", "ratio_all", "kept"):
            values_ = column_of(found, column)
            row[column] = mean_sd(values_[~np.isnan(values_)])[0]
        rows.append({**row, "runs with nothing kept": sum(not run.rows for run in found), "runs": len(found)})
    return rows


READINGS = {"eq. 18 to the letter": False, "standard exponential mechanism": True}


def readings(number: int, effort: Effort) -> list[dict[str, object]]:
    """Run algorithm 1 on one setting by both readings of its choice of a node: the share of packages it suppresses."""
    setting = TABLE_1[number]
    hard = setting.numeral == HARD
    ks = effort.hard_ks if hard else effort.ks
    judges = [Judge.of(Job(LATTICE, setting, i, effort)) for i in range(effort.hard_runs if hard else effort.runs)]
    row: dict[str, object] = {"setting": setting.numeral, "k": ", ".join(map(str, ks))}
    for name, standard in READINGS.items():
        kept = [
            len(whole_sample(judge, k, DOUBLING, standard=standard).record) / len(judge.weights)
            for judge in judges
            for k in ks
        ]
        row[name] = 1 - float(np.mean(kept))
    row["epsilon stated at k = 4"] = stated(4, setting.law.size)["epsilon stated"]
    row["epsilon of the standard mechanism"] = float(sampling_epsilon(BETA) + CHOICE)
    return [{**row, "runs": len(judges) * len(ks)}]


# Risk of the whole plan


RISK = Fraction(1, 20)
RISKY_SECONDS = 1.0


class RiskyCase(NamedTuple):
    """Weights that plans are made for: what they are, the public domain, epsilon, and the law they are drawn from."""

    weights: str
    domain: tuple[int, int]
    epsilon: int
    drawn: tuple[int, int]


RISKY = (
    RiskyCase("even over the public domain: the prior", (125, 375), 10, (125, 375)),
    RiskyCase("even over the public domain: the prior", (0, 500), 20, (0, 500)),
    RiskyCase("even from 225 to 325", (0, 500), 20, (225, 325)),
    # Just too heavy for two to fit: whoever trusts lucky noise puts two together.
    RiskyCase("all 251", (0, 500), 20, (251, 251)),
)


class Planner(NamedTuple):
    """A way to plan on a noisy release, and what risk it promises for which data."""

    name: str
    promised: str
    plan: Callable[[dn.Release, float], IntArray]


def _by_model(model: Any) -> Callable[[dn.Release, float], IntArray]:
    def plan(release: dn.Release, capacity: float) -> IntArray:
        found = dn.pack(release, capacity=capacity, model=model, seconds=RISKY_SECONDS)
        assert found.bin_of_row is not None
        return found.bin_of_row

    return plan


PLANNERS = (
    Planner("noisy weights", "nothing", _by_model(dn.Standard(statistic="mean"))),
    Planner("upper ends, c = 0.7 each (the paper's)", "30 % for each package", _by_model(dn.Standard())),
    Planner(
        "noise taken as independent of the plan (naive)",
        "5 %, wrongly",
        lambda release, capacity: naive_packing(release, capacity=capacity, risk=RISK)[0],
    ),
    Planner("simultaneous sizes", "5 % for any data", _by_model(dn.Stochastic(risk=RISK))),
    Planner("posterior, uniform prior", "5 % over the prior", _by_model(dn.Stochastic(risk=RISK, prior="uniform"))),
)


def plan_risk(number: int, effort: Effort) -> list[dict[str, object]]:
    """Count how often some truck of a plan is overloaded, over fresh weights and noise, planner by planner."""
    case = RISKY[number]
    law = replace(TABLE_2[0].law, low=float(case.domain[0]), high=float(case.domain[1]))
    mechanism = NoisyValues(epsilon=case.epsilon, confidence=CONFIDENCE)
    generator = np.random.default_rng([5, number])
    failed, bins = np.zeros(len(PLANNERS), dtype=np.int64), np.zeros(len(PLANNERS), dtype=np.int64)
    for draw in range(effort.risk_draws):
        weights = generator.integers(case.drawn[0], case.drawn[1] + 1, law.size).astype(np.float64)
        found = published(mechanism, dataset_of(law, weights, mechanism), (5, number, draw))
        for index, planner in enumerate(PLANNERS):
            plan = planner.plan(found.release, law.capacity)
            loads = np.bincount(plan, weights=weights[found.record])
            failed[index] += bool((loads > law.capacity).any())
            bins[index] += int(plan.max()) + 1
    rows, num = [], effort.risk_draws
    for planner, failures, trucks in zip(PLANNERS, failed.tolist(), bins.tolist(), strict=True):
        row: dict[str, object] = {"weights": case.weights, "public domain": f"[{case.domain[0]}, {case.domain[1]}]"}
        row |= {"epsilon": case.epsilon, "planner": planner.name, "risk promised": planner.promised}
        least, most = clopper_pearson(failures, num)
        row |= {"plans that fail": failures / num, "at least": least, "at most": most}
        rows.append({**row, "trucks": trucks / num, "plans": num})
    return rows


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A quantity of a package: public domain and grid, first width, border of two clusters, and a truck's room."""

    low: float
    high: float
    resolution: float
    doubling: float
    border: float
    capacity: float


WEIGHT = Quantity(low=125, high=375, resolution=1, doubling=62.5, border=250, capacity=1250)
VOLUME = Quantity(low=0.5, high=4.5, resolution=0.1, doubling=1, border=2.5, capacity=12)
SIDE = Quantity(low=20, high=120, resolution=1, doubling=25, border=70, capacity=360)
CARGOES: dict[str, dict[str, Quantity]] = {
    "two quantities": {"weight": WEIGHT, "volume": VOLUME},
    "four quantities": {"weight": WEIGHT, "height": SIDE, "width": SIDE, "length": SIDE},
}
CARGO_SIZE = 60
CARGO_SEED = 4


def cargo_of(quantities: Mapping[str, Quantity], instance: int) -> dict[str, FloatArray]:
    """Draw packages whose quantities go together: half of each is a size that all share."""
    generator = np.random.default_rng([CARGO_SEED, len(quantities), instance])
    size = generator.uniform(0, 1, CARGO_SIZE)
    drawn = {}
    for name, one in quantities.items():
        share = (size + generator.uniform(0, 1, CARGO_SIZE)) / 2
        steps = np.rint(share * (one.high - one.low) / one.resolution)
        drawn[name] = np.round(one.low + steps * one.resolution, 6)
    return drawn


def cargo_mechanisms(quantities: Mapping[str, Quantity], epsilon: Fraction) -> dict[str, Any]:
    borders = {name: [one.border] for name, one in quantities.items()}
    return {
        "sampled lattice, k = 4": SampledLattice(k=4, beta=BETA, epsilon_choice=Fraction(2)),
        "partition, k = 4": dn.Partition(k=4, alpha=CARGO_SIZE),
        "clusters with public borders": NoisyClusters(epsilon=epsilon, borders=borders, confidence=CONFIDENCE),
        "Laplace by the public domain": NoisyValues(epsilon=epsilon, confidence=CONFIDENCE),
        "piecewise by the public domain": NoisyValues(epsilon=epsilon, confidence=CONFIDENCE, law="piecewise"),
    }


def several(name: str, form: str, effort: Effort, *, epsilon: Fraction = Fraction(10)) -> list[dict[str, object]]:
    """Publish and pack packages of several quantities, each of which adds up within a truck; means over draws."""
    quantities = CARGOES[name]
    mechanism = cargo_mechanisms(quantities, epsilon)[form]
    found = [_packed_cargo(quantities, mechanism, i, effort) for i in range(effort.beside_runs)]
    guarantee = mechanism.promise(_cargo_policy(quantities, mechanism).schema).guarantee.to_dict()
    row: dict[str, object] = {"quantities": ", ".join(quantities), "form": form}
    row |= {key: guarantee.get(key) for key in ("model", "k", "epsilon", "delta")}
    for column in found[0]:
        disclosed = np.array([one[column] for one in found])
        row[column] = mean_sd(disclosed[~np.isnan(disclosed)])[0]
    return [row]


def _cargo_policy(quantities: Mapping[str, Quantity], mechanism: Any) -> dn.Policy:
    attributes = {}
    for name, one in quantities.items():
        public = {"domain": [one.low, one.high], "resolution": one.resolution, "doubling": one.doubling}
        attributes[name] = {"role": "quasi-identifier", "kind": "numeric", **public}
    document = {"dataset": "cargo", "protects": "package", "attributes": attributes}
    return dn.Policy.from_dict({**document, "mechanism": {"name": mechanism.name}})


def _packed_cargo(
    quantities: Mapping[str, Quantity], mechanism: Any, instance: int, effort: Effort
) -> dict[str, float]:
    drawn = cargo_of(quantities, instance)
    data = dn.Dataset.from_table(pa.table(drawn), _cargo_policy(quantities, mechanism))
    found = published(mechanism, data, (CARGO_SEED, len(quantities), instance))
    release, record = found.release, found.record
    if not len(release):
        return {"kept": 0.0, **dict.fromkeys(("trucks", "optimum", "ratio", "bins_feasible", "proved"), math.nan)}
    capacity = [f"{name}={one.capacity:g}" for name, one in quantities.items()]
    plan = dn.pack(release, capacity=capacity, seconds=effort.cargo_seconds)
    assert plan.bin_of_row is not None
    fits = np.ones(plan.num_bins, dtype=bool)
    scaled = []
    for name, one in quantities.items():
        # Whole numbers of grid steps, so that nothing is lost by adding.
        steps = np.rint(drawn[name][record] / one.resolution).astype(np.int64)
        room = round(one.capacity / one.resolution)
        fits &= np.bincount(plan.bin_of_row, weights=steps, minlength=plan.num_bins) <= room
        scaled.append((steps, room))
    kind = BinKind(capacity=tuple(room for _, room in scaled), cost=1)
    least = pack_vectors(np.column_stack([steps for steps, _ in scaled]), [kind], seconds=effort.cargo_seconds)
    return {
        "kept": len(release) / CARGO_SIZE,
        "trucks": float(plan.num_bins),
        "optimum": float(len(least.bins)),
        "ratio": plan.num_bins / len(least.bins),
        "bins_feasible": float(fits.mean()),
        "proved": float(plan.bound == plan.num_bins and least.bound == least.cost),
    }


@dataclass(frozen=True)
class Part:
    """Some lines of a table: its name, and how they are measured."""

    table: str
    arguments: tuple[Any, ...]
    effort: Effort


MEASURES: dict[str, Callable[..., list[dict[str, object]]]] = {
    "hierarchies": hierarchies,
    "readings": readings,
    "identification": identification,
    "lattice identification": lattice_identification,
    "plan risk": plan_risk,
    **{name: partial(several, name) for name in CARGOES},
}


def parts(effort: Effort) -> list[Part]:
    arguments: dict[str, Sequence[Any]] = {
        "hierarchies": range(len(TABLE_1)),
        "readings": range(len(TABLE_1)),
        "identification": list(ATTACKS),
        "lattice identification": (2, 4, 6),
        "plan risk": range(len(RISKY)),
        **{name: list(cargo_mechanisms(CARGOES[name], Fraction(1))) for name in CARGOES},
    }
    return [Part(table, (given,), effort) for table, listed in arguments.items() for given in listed]


def measure_part(part: Part) -> list[tuple[Part, dict[str, object]]]:
    return [(part, row) for row in MEASURES[part.table](*part.arguments, part.effort)]


def by_name(found: Sequence[tuple[Part, dict[str, object]]], effort: Effort) -> dict[str, list[dict[str, object]]]:
    tables: dict[str, list[dict[str, object]]] = {table: [] for table in MEASURES}
    for part in parts(effort):
        tables[part.table] += [row for own, row in found if own == part]
    return tables
