# SPDX-License-Identifier: Apache-2.0
"""The loads story: packages are published, packed by a planner, and loaded by their owner."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray
from dunnage.auditing.plans import PlanUtility, plan_utility, true_plan
from dunnage.auditing.run import audit
from dunnage.dataset import Dataset
from dunnage.demo.story import (
    SEED,
    Numbers,
    Progress,
    Story,
    advised,
    check,
    frontier_part,
    plain,
    signed,
    write_frontier,
    write_json,
    write_text,
)
from dunnage.io import load
from dunnage.mechanisms.noisy_clusters import exposed_records, published_noise
from dunnage.mechanisms.partition import Partition
from dunnage.noise import Noise
from dunnage.pages import LoadsStory, PlanView, loads_page, write_audit
from dunnage.pages.demo import Chapter, Claim, Part, Table, Told, bars_picture
from dunnage.pages.loads import loads_pictures
from dunnage.planning.models import Model, Sealed, Standard, Stochastic
from dunnage.planning.packing import pack
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples import PackageSetting, generate_packages
from dunnage.settle import Settlement, apply, matched_records
from dunnage.svg import Picture
from dunnage.text import percent

NAME = "loads"
CAPACITY, BY, QUANTITY = 500.0, "destination", "weight"
PLAN_SECONDS = 20.0
QUICK_ADVICE_SIZE = 30
"""Packages that are generated to measure a policy on, if it has to be quick."""
PUBLISHED_SIZE = 25
"""Packages of the smallest setting in the paper of noisy clusters."""
PUBLISHED_SHARES = tuple(Fraction(share, 100) for share in (5, 35, 65, 95))
PUBLISHED_EPSILON = 1
_ADVICE_NOTE = " One whose plan overloads many trucks before the owner repairs it is crossed out, and not advised."
CERTIFICATE, UTILITY, AUDIT = "release/certificate.json", "utility.json", "audit/audit.json"

# title, name of the folders, model; the first is the plan without privacy
PLANS: Mapping[str, tuple[str, Model]] = {
    "mean": ("Class means", Standard(statistic="mean")),
    "upper": ("Upper bounds", Standard()),
    "stochastic": ("Certified", Stochastic()),
    "sealed": ("Sealed slots", Sealed()),
}
DRAWN = ("mean", "sealed")
WRITTEN = frozenset(
    {
        "parcels.csv",
        "parcels.toml",
        "dunnage-ledger.sqlite",
        "release",
        "release.key.parquet",
        *(f"{kind}-{name}" for kind in ("plan", "settlement") for name in PLANS),
        "utility.json",
        "audit",
        "frontier",
        "frontier.partial",
        "as-published.csv",
        "figures.json",
        "loads.html",
    }
)


@dataclass(frozen=True, eq=False)
class _Packed:
    """One plan, what became of it, and what it cost."""

    title: str
    plan: Plan
    done: Settlement
    utility: PlanUtility


def tell_loads(folder: Path, *, quick: bool, tell: Progress) -> Story:
    tell("loads: generating packages")
    setting = PackageSetting(size=60 if quick else 240, destinations=3 if quick else 4, decimals=1)
    source, policy = generate_packages(setting, folder / "parcels.csv", seed=SEED)
    data = load(source, policy)
    tell("loads: publishing and verifying")
    release, key = publish(data, out=folder / "release")
    check(folder / "release")
    packed = {name: _pack(folder, name, data, release, key, tell) for name in PLANS}
    plans = {name: {"planned": one.plan.num_bins, **one.utility.to_dict()} for name, one in packed.items()}
    write_json(folder / UTILITY, {"format": 1, "capacity": CAPACITY, "plans": plans})
    tell("loads: attacking release and plan")
    write_audit(audit(release, data, packed["sealed"].plan, key=key), folder / "audit")
    pictured = _pictured(data, release, key, packed)
    write_text(folder / "loads.html", loads_page(pictured))
    tell("loads: the published form")
    _write_published(folder, data.numbers(QUANTITY)[:PUBLISHED_SIZE])
    write_frontier(
        folder,
        source,
        policy,
        goal="trucks",
        capacity=[f"{CAPACITY:g}kg"],
        by=BY,
        size=QUICK_ADVICE_SIZE if quick else None,
        max_cost="5%",
        quick=quick,
        tell=lambda stage: tell(f"loads: frontier, {stage}"),
    )
    return _told(Numbers(folder), pictured)


def _pack(folder: Path, name: str, data: Dataset, release: Release, key: Key, tell: Progress) -> _Packed:
    """Plan on the release, apply the plan, and keep both."""
    title, model = PLANS[name]
    tell(f"loads: packing, {title.lower()}")
    plan = pack(release, capacity=CAPACITY, by=BY, model=model, seconds=PLAN_SECONDS)
    plan.write(folder / f"plan-{name}")
    done = apply(plan, data, release, key, repair=True)
    done.write(folder / f"settlement-{name}")
    return _Packed(title, plan, done, plan_utility(done, data))


def _write_published(folder: Path, weights: FloatArray) -> None:
    """Run algorithm 2 of Li et al. as it is printed on some of the packages; it would publish the second column."""
    steps = np.round(weights * 10).astype(np.int64)
    noisy, _ = published_noise(
        steps, PUBLISHED_SHARES, epsilon=Fraction(PUBLISHED_EPSILON), confidence=Fraction(9, 10), noise=Noise()
    )
    exact = exposed_records(steps, PUBLISHED_SHARES)
    lines = [f"{true / 10:g},{told / 10:g},{int(out)}" for true, told, out in zip(steps, noisy, exact, strict=True)]
    write_text(folder / "as-published.csv", "\n".join(["weight,published,without_noise", *lines, ""]))


# Pictures


def _pictured(data: Dataset, release: Release, key: Key, packed: Mapping[str, _Packed]) -> LoadsStory:
    """Put the plans side by side; the one on true weights stays with the owner, so that it is kept nowhere else."""
    truth = data.numbers(QUANTITY)[matched_records(data, release, key)]
    ideal = true_plan(data, release, key, capacity=CAPACITY, by=BY)
    settled = apply(ideal, data, release, key)
    without = _Packed("True weights", ideal, settled, plan_utility(settled, data))
    return LoadsStory(
        title="Parcels packed without telling which is which",
        release=release,
        quantity=QUANTITY,
        truth=truth,
        capacity=CAPACITY,
        plans=[_view(one, truth) for one in (without, *packed.values())],
    )


def _view(packed: _Packed, truth: FloatArray) -> PlanView:
    plan, done = packed.plan, packed.done
    # A plan on true weights never leaves the owner, so nobody can be told a truck by it.
    linkage = None if plan.private else done.truck_linkage
    return PlanView(
        title=packed.title,
        # A sealed plan assigns no row: what is shown is how the owner filled it.
        bins=_bins(truth, done.bin_of_row if plan.bin_of_row is None else plan.bin_of_row, plan.num_bins),
        bins_repaired=_bins(truth, done.bin_of_row, len(done.final_loads)) if done.repair is not None else None,
        objective=plan.num_bins,
        bound=int(plan.bound),
        ratio=packed.utility.ratio,
        bins_feasible=done.bins_feasible,
        plan_feasible=done.plan_feasible,
        linkage_mean=linkage.mean if linkage else None,
        linkage_worst=linkage.worst if linkage else None,
        linkage_kind=linkage.kind if linkage else "never leaves the owner",
        seconds=plan.seconds,
        repair=done.repair.sentence if done.repair is not None else "",
    )


def _bins(weights: FloatArray, bin_of_row: npt.NDArray[np.int64], num_bins: int) -> list[list[float]]:
    bins: list[list[float]] = [[] for _ in range(num_bins)]
    for weight, number in zip(weights.tolist(), bin_of_row.tolist(), strict=True):
        if number >= 0:
            bins[number].append(weight)
    return bins


# The chapter


def _told(numbers: Numbers, pictured: LoadsStory) -> Story:
    _name_numbers(numbers)
    figures = [
        ("packages", "records", "released, {kept_back} kept back"),
        ("look alike", "k", "packages at least, proved"),
        ("trucks, no privacy", "optimum", "the fewest there can be"),
        ("trucks, private", "trucks", "sealed slots"),
        ("cost of privacy", "cost", "trucks"),
        ("truck named", "linkage", "by who knows the weight"),
    ]
    intervals, cards = loads_pictures(pictured)
    chapter = Chapter(
        name=NAME,
        title="Trucks packed without telling which package is which",
        lead=numbers.say(
            "A delivery centre lets an outside planner pack its trucks. The planner sees no package's weight: each of "
            "{records} packages is published as a range that at least {k} packages of its destination share."
        ),
        tile=(numbers["trucks"], numbers.say("trucks, where {optimum} would do if the planner knew every weight")),
        figures=[numbers.key_figure(*figure) for figure in figures],
        parts=[
            _protected(numbers, intervals),
            _cost(numbers, cards),
            _attacked(numbers),
            frontier_part(
                numbers,
                cost="more trucks",
                risk="a truck is named with",
                note=_ADVICE_NOTE,
                more=_why_not_advised(numbers),
            ),
            Part(
                title="What the papers claimed, and what is true", claims=[_noise_claim(numbers), _plan_claim(numbers)]
            ),
        ],
        links=[
            ("All plans in detail", "loads/loads.html"),
            ("Audit", "loads/audit/audit.html"),
            ("Sign-off", "loads/audit/sign-off.html"),
            ("Frontier", "loads/frontier/frontier.html"),
            ("What the planner got", "loads/release/README.md"),
            ("Certificate", "loads/release/certificate.json"),
            ("Loading list", "loads/settlement-sealed/loading.csv"),
        ],
    )
    line = numbers.say(
        "Loads     {records} packages, {k} look alike at least: {trucks} trucks, {optimum} without privacy; a truck is "
        "named with {linkage}"
    )
    return Story(chapter, numbers, line)


def _name_numbers(numbers: Numbers) -> None:
    """Read every number of the chapter, by the name that its sentences use."""
    optimum = numbers.read("trucks that the true weights need", UTILITY, "/plans/sealed/optimum")
    trucks = numbers.read("trucks of the sealed plan", UTILITY, "/plans/sealed/objective")
    worst = "truck linkage at worst, upper bounds"
    numbers.name(
        records=numbers.read("packages released", CERTIFICATE, "/measures/records"),
        kept_back=numbers.read("packages kept back", CERTIFICATE, "/measures/suppressed/count"),
        k=numbers.read("k reached", CERTIFICATE, "/measures/k_reached"),
        classes=numbers.read("classes", CERTIFICATE, "/measures/classes"),
        loss=numbers.read("information loss", CERTIFICATE, "/measures/loss/total", percent),
        named=numbers.read("a row is named with at most", CERTIFICATE, "/meaning/odds/0/right_at_most", percent),
        optimum=optimum,
        trucks=trucks,
        cost=numbers.compute(
            "trucks more, sealed plan",
            float(trucks.value) / float(optimum.value) - 1,
            "trucks of the sealed plan over those that the true weights need, less one",
            [trucks, optimum],
            signed,
        ),
        capacity=numbers.read("capacity of a truck", UTILITY, "/capacity", "{:g} kg".format),
        linkage=numbers.finding(AUDIT, "truck linkage"),
        linkage_worst=numbers.finding(AUDIT, "truck linkage, worst"),
        chance=numbers.finding(AUDIT, "truck linkage", "baseline"),
        row=numbers.finding(AUDIT, "record linkage"),
        row_worst=numbers.finding(AUDIT, "record linkage, worst"),
        upper=numbers.read("truck linkage, upper bounds", UTILITY, "/plans/upper/truck_linkage/mean", percent),
        upper_worst=numbers.read(worst, UTILITY, "/plans/upper/truck_linkage/worst", percent),
        near=numbers.finding(AUDIT, f"value linkage ({QUANTITY})"),
        blind=numbers.finding(AUDIT, f"value linkage ({QUANTITY})", "baseline"),
    )


def _protected(numbers: Numbers, intervals: Picture) -> Part:
    words = numbers.say(
        "Which package weighs what. Who knows a package and finds its range names its row with at most {named}; the "
        "certificate says so, and anyone can verify it by counting."
    )
    picture = replace(
        intervals,
        title="What the planner saw, and what is true",
        caption=numbers.say("{classes} ranges in all; on average one covers {loss} of the public domain."),
        sources=[numbers.place("release/classes.csv"), numbers.place("parcels.csv")],
        legend=[("range", "range seen by the planner"), ("mean", "class mean"), ("dot", "true weight, owner only")],
    )
    return Part(title="What was protected", words=[words], pictures=[picture])


def _cost(numbers: Numbers, cards: Mapping[str, Picture]) -> Part:
    columns: dict[str, tuple[str, str, Callable[[float], str]]] = {
        "Trucks planned": ("trucks planned", "planned", plain),
        "Trucks that leave": ("trucks that leave", "objective", plain),
        "Over the optimum": ("over the optimum", "ratio", "{:.3f}".format),
        "Trucks that fit": ("trucks that fit", "bins_feasible", percent),
        "Truck named": ("truck linkage", "truck_linkage/mean", percent),
        "At worst": ("truck linkage at worst", "truck_linkage/worst", percent),
    }
    rows, pictures = [], []
    for name, (title, _) in PLANS.items():
        cells = [
            numbers.read(f"{title}, {words}", UTILITY, f"/plans/{name}/{field}", show)
            for words, field, show in columns.values()
        ]
        rows.append((title, cells))
        if name in DRAWN:
            caption = "{planned} trucks as planned; {fit} of them hold their true load."
            pictures.append(
                replace(
                    cards[title],
                    title=f"How full the trucks really are: {title.lower()}",
                    caption=Told(caption, planned=cells[0], fit=cells[3]),
                    sources=[numbers.place(f"settlement-{name}/settlement.json")],
                    legend=[("load", "true load"), ("over", "overloaded"), ("limit", "capacity")],
                )
            )
    words = numbers.say(
        "Four plans were made from the release alone, for trucks of {capacity}, and then met the true weights. Plans "
        "on upper bounds always fit, and take more trucks. Those on means take fewer and overflow in places; the owner "
        "repairs them. With sealed slots the planner says only how many packages of each class a truck takes, and the "
        "owner fills them."
    )
    table = Table(columns=["Plan on", *columns], rows=rows)
    return Part(title="What it cost", words=[words], table=table, pictures=pictures)


def _why_not_advised(numbers: Numbers) -> list[Told]:
    """Say why something else than the advice was published, if so."""
    found = advised(numbers)
    if found is None or (found[0].mechanism == Partition.name and found[0].parameters.get("k") == numbers["k"].value):
        return []
    words = (
        "What was published above, {k} packages alike, is the policy that the packages were generated with, before "
        "anything was measured; the advice is for who publishes next."
    )
    return [numbers.say(words)]


def _attacked(numbers: Numbers) -> Part:
    words = numbers.say(
        "A thief who knows a package's weight wants its truck. By chance, from its destination and the plan alone, a "
        "guess is right with {chance}; with the release it is {upper} on upper bounds and {linkage} with sealed slots, "
        "which pay for fewer trucks with leaving fewer ways to load them. Who knows only the class of a package "
        "guesses its weight closely for {near} of all; without the release, for {blind}."
    )
    bars = bars_picture(
        "How often the attacker is right",
        [
            ("truck, by chance", numbers["chance"], "range"),
            ("row, from the release", numbers["row"], "bar"),
            ("truck, plan on upper bounds", numbers["upper"], "bar"),
            ("truck, sealed slots", numbers["linkage"], "bar"),
        ],
        Told("On average over all packages, by somebody who knows the exact weight of a package."),
    )
    return Part(title="What an attacker got", words=[words], pictures=[bars])


def _noise_claim(numbers: Numbers) -> Claim:
    """Count what the published form of noisy clusters printed without noise."""
    file = "as-published.csv"
    with (numbers.folder / file).open(encoding="utf-8", newline="") as stream:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(stream)]
    bare = sum(bool(row["without_noise"]) for row in rows)
    heaviest = max(rows, key=lambda row: row["weight"])["published"]
    of_heaviest, run_with = "published weight of the heaviest package", "the epsilon it was run with"
    numbers.name(
        tried=numbers.compute("packages tried as published", len(rows), "rows of the file", [file]),
        printed=numbers.compute("weights printed exactly", bare, "rows of clusters without any noise", [file]),
        weight=numbers.compute("heaviest weight, as printed", heaviest, of_heaviest, [file], "{:g} kg".format),
        epsilon=numbers.compute("epsilon claimed for noisy clusters", PUBLISHED_EPSILON, run_with, [file]),
    )
    return Claim(
        paper="Li, Erkin and Lagendijk, 2022",
        claimed=numbers.say(
            "Noise by the range of each cluster of weights keeps every package private, at epsilon {epsilon} say."
        ),
        found=numbers.say(
            "The range comes from the weights themselves, and a cluster of one package has none. Run as printed on "
            "{tried} of these packages it gave {printed} weights away without any noise, the heaviest, {weight}, among "
            "them. There is no bound at all, and its certificate says so. Ours scales noise by public ranges."
        ),
        holds=False,
    )


def _plan_claim(numbers: Numbers) -> Claim:
    return Claim(
        paper="Hoogervorst et al., 2019",
        claimed=numbers.say("Planning on k-anonymous weights keeps each package hidden among k: here {k}."),
        found=numbers.say(
            "Of rows that is true: none is named with more than {row_worst}. Of trucks it is not, and they are what a "
            "thief wants: at worst a truck is named with {upper_worst} from the plan on upper bounds, and with "
            "{linkage_worst} from sealed slots. So every plan states it."
        ),
        holds=None,
    )
