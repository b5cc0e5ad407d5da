# SPDX-License-Identifier: Apache-2.0
"""The loads story: an owner publishes packages, a planner packs them, and the owner loads the trucks."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.auditing.plans import DEFAULT_SECONDS, PlanUtility, group_codes, pack_truth, plan_utility
from dunnage.auditing.run import audit
from dunnage.mechanisms.noisy import exposed_records, published_noise
from dunnage.mechanisms.partition import Partition
from dunnage.mechanisms.size_profile import SizeProfile
from dunnage.noise.source import Noise
from dunnage.planning.models import Model, PackingModel, Sealed, Standard, Stochastic
from dunnage.planning.packing import pack
from dunnage.planning.plan import Plan, whole_if_possible
from dunnage.planning.trucks import Truck
from dunnage.publication import Key
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples import PackageSetting, generate_packages
from dunnage.settle import Settlement, apply, matched_records
from dunnage.showing.audit import write_audit
from dunnage.showing.figures import Picture
from dunnage.showing.loading import loading_page
from dunnage.showing.loads import LoadsStory, PlanView, loads_page, loads_pictures
from dunnage.tables.dataset import Dataset, load
from dunnage.text import percent, percent_at_most
from dunnage_demo import story

CAPACITY, BY, QUANTITY = 500.0, "destination", "weight"
PLAN_SECONDS = 20.0
QUICK_ADVICE_SIZE = 30  # generated packages to measure a policy on, in a quick run
PUBLISHED_SIZE = 25  # packages in the smallest setting of the paper on noisy clusters
PUBLISHED_SHARES = tuple(Fraction(share, 100) for share in (5, 35, 65, 95))
PUBLISHED_EPSILON = 1
CERTIFICATE, UTILITY, AUDIT = "release/certificate.json", "utility.json", "audit/audit.json"
AS_PUBLISHED = "as-published.csv"
PROFILE_SIZE, PROFILE_EPSILON, PROFILE_RISK = 1000, 1, "0.05"  # packages released as a profile, and its promise
PROFILE, PROFILE_CERTIFICATE = "profile/utility.json", "profile/release/certificate.json"
# Title and model of each plan, by the name in its folders.
PLANS: Mapping[str, tuple[str, Model]] = {
    "mean": ("Class means", Standard(statistic="mean")),
    "upper": ("Upper bounds", Standard()),
    "stochastic": ("Certified", Stochastic()),
    "sealed": ("Sealed slots", Sealed()),
}
WRITTEN = {
    *("parcels.csv", "parcels.toml", "dunnage-ledger.sqlite", "release", "release.key.parquet"),
    *(f"{kind}-{name}" for kind in ("plan", "settlement") for name in PLANS),
    *(UTILITY, "profile", "audit", "frontier", "frontier.partial", AS_PUBLISHED, "figures.json", "loads.html"),
}


class _Packed(NamedTuple):
    title: str
    plan: Plan
    done: Settlement
    utility: PlanUtility


def tell_loads(folder: Path, *, quick: bool, tell: story.Progress) -> story.Story:
    tell("loads: generating packages")
    setting = PackageSetting(size=60 if quick else 240, destinations=3 if quick else 4, decimals=1)
    source, policy = generate_packages(setting, folder / "parcels.csv", seed=story.SEED)
    data = load(source, policy)
    tell("loads: publishing and verifying")
    release, key = publish(data, out=folder / "release")
    story.check(folder / "release")
    packed = {}
    for name, (title, model) in PLANS.items():
        tell(f"loads: packing, {title.lower()}")
        plan = pack(release, capacity=CAPACITY, by=BY, model=model, seconds=PLAN_SECONDS)
        plan.write(folder / f"plan-{name}")
        done = apply(plan, data, release, key, repair=True)
        done.write(folder / f"settlement-{name}", sheets=loading_page(done))
        packed[name] = _Packed(title, plan, done, plan_utility(done, data))
    plans = {name: {"planned": one.plan.num_bins, **one.utility.to_dict()} for name, one in packed.items()}
    story.write_json(folder / UTILITY, {"format": 1, "capacity": CAPACITY, "plans": plans})
    tell("loads: a profile with differential privacy")
    _tell_profile(folder / "profile")
    tell("loads: attacking release and plan")
    write_audit(audit(release, data, packed["sealed"].plan, key=key), folder / "audit")
    pictured = _pictured(data, release, key, packed)
    story.write_text(folder / "loads.html", loads_page(pictured))
    tell("loads: the published form")
    # Algorithm 2 of Li et al. as printed, on some of the packages; it would publish the second column.
    steps = np.round(data.numbers(QUANTITY)[:PUBLISHED_SIZE] * 10).astype(np.int64)
    noisy, _ = published_noise(
        steps, PUBLISHED_SHARES, epsilon=Fraction(PUBLISHED_EPSILON), confidence=Fraction(9, 10), noise=Noise()
    )
    exact = exposed_records(steps, PUBLISHED_SHARES)
    lines = [f"{true / 10:g},{noised / 10:g},{int(out)}" for true, noised, out in zip(steps, noisy, exact, strict=True)]
    story.write_text(folder / AS_PUBLISHED, "\n".join(["weight,published,without_noise", *lines, ""]))
    story.write_frontier(
        folder,
        source,
        policy,
        goal="trucks",
        capacity=[f"{CAPACITY:g}kg"],
        by=BY,
        size=QUICK_ADVICE_SIZE if quick else None,
        max_cost="5%",
        quick=quick,
        tell=tell,
    )
    return _chapter(story.Numbers(folder), pictured)


def _tell_profile(folder: Path) -> None:
    """Release a larger file of packages, all for one destination, as a profile of weights; plan and load it."""
    folder.mkdir(mode=0o700)
    setting = PackageSetting(size=PROFILE_SIZE, decimals=1)
    source, policy = generate_packages(setting, folder / "parcels.csv", seed=story.SEED)
    attributes, _, _ = policy.read_text(encoding="utf-8").partition("[mechanism]")
    mechanism = SizeProfile(epsilon=PROFILE_EPSILON, risk=PROFILE_RISK, expected=PROFILE_SIZE, capacity=CAPACITY)
    lines = [f"{name} = {json.dumps(value)}" for name, value in mechanism.describe().items() if value is not None]
    story.write_text(folder / "profile.toml", "\n".join([f"{attributes}[mechanism]", *lines, ""]))
    data = load(source, folder / "profile.toml")
    release, key = publish(data, out=folder / "release")
    story.check(folder / "release")
    plan = pack(release, capacity=CAPACITY, seconds=PLAN_SECONDS)
    plan.write(folder / "plan")
    done = apply(plan, data, release, key, repair=True)
    done.write(folder / "settlement", sheets=loading_page(done))
    found = {"planned": plan.num_bins, **plan_utility(done, data).to_dict()}
    story.write_json(folder / "utility.json", {"format": 1, "capacity": CAPACITY, **found})


def _pictured(data: Dataset, release: Release, key: Key, packed: Mapping[str, _Packed]) -> LoadsStory:
    """Collect the plans; the plan on true weights stays with the owner, so it is not written to a folder."""
    start, records = time.monotonic(), matched_records(data, release, key)
    truck = Truck(name="truck", capacity={QUANTITY: CAPACITY})
    truth, group = data.numbers(QUANTITY)[records], group_codes(data, [BY], records)
    best = pack_truth(truth[:, None], [QUANTITY], [truck], group, deadline=start + DEFAULT_SECONDS)
    ideal = Plan(
        release=release.certificate.digest,
        bin_of_row=best.bin_of_row,
        truck_of_bin=best.truck_of_bin,
        trucks=(truck,),
        model=PackingModel(name="true weights"),
        bound=whole_if_possible(best.bound),
        seconds=time.monotonic() - start,
        quantities={QUANTITY: release.uncertain(QUANTITY).unit},
        by=BY,
        private=True,
    )
    settled = apply(ideal, data, release, key)
    without = _Packed("True weights", ideal, settled, plan_utility(settled, data))
    views = []
    for one in (without, *packed.values()):
        plan, done = one.plan, one.done
        # A plan on true weights never leaves the owner, so it reveals no truck to anyone.
        linkage = None if plan.private else done.truck_linkage
        views.append(
            PlanView(
                title=one.title,
                # A sealed plan assigns no rows, so the picture shows how the owner filled it.
                bins=_bins(truth, done.bin_of_row if plan.bin_of_row is None else plan.bin_of_row, plan.num_bins),
                bins_repaired=_bins(truth, done.bin_of_row, len(done.final_loads)) if done.repair is not None else None,
                objective=plan.num_bins,
                bound=int(plan.bound),
                ratio=one.utility.ratio,
                bins_feasible=done.bins_feasible,
                plan_feasible=done.plan_feasible,
                linkage_mean=linkage.mean if linkage else None,
                linkage_worst=linkage.worst if linkage else None,
                linkage_kind=linkage.kind if linkage else "never leaves the owner",
                seconds=plan.seconds,
                repair=done.repair.sentence if done.repair is not None else "",
            )
        )
    return LoadsStory(
        title="Packing parcels without revealing which is which",
        release=release,
        quantity=QUANTITY,
        truth=truth,
        capacity=CAPACITY,
        plans=views,
    )


def _bins(weights: FloatArray, bin_of_row: IntArray, num_bins: int) -> list[list[float]]:
    bins: list[list[float]] = [[] for _ in range(num_bins)]
    for weight, number in zip(weights.tolist(), bin_of_row.tolist(), strict=True):
        if number >= 0:
            bins[number].append(weight)
    return bins


def _chapter(n: story.Numbers, pictured: LoadsStory) -> story.Story:
    _name_numbers(n)
    intervals, cards = loads_pictures(pictured)
    plans, pictures = _plan_table(n, cards)
    profile = _profile_table(n)
    pictures["intervals"] = replace(
        intervals,
        title="What the planner saw, and what is true",
        sources=[n.place("release/classes.csv"), n.place("parcels.csv")],
        legend=[("range", "range that the planner saw"), ("mean", "class mean"), ("dot", "true weight, owner only")],
    )
    pictures["attack"] = story.bars_picture(
        "How often an attacker is right",
        [
            ("truck, by chance", n["chance"], "range"),
            ("row, from the release", n["row"], "bar"),
            ("truck, plan on upper bounds", n["upper"], "bar"),
            ("truck, sealed slots", n["linkage"], "bar"),
        ],
        "The average over all packages, for someone who knows the exact weight of a package.",
    )
    pictures["frontier"], frontier, advice = story.read_frontier(n)
    # The chapter says so if the published policy is not the advice.
    k = int(float(n["k"]))
    is_advised = advice is not None and advice.mechanism == Partition.name and advice.parameters.get("k") == k
    # Count the weights that the published form of noisy clusters prints without noise.
    with (n.folder / AS_PUBLISHED).open(encoding="utf-8", newline="") as stream:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(stream)]
    bare, files = sum(bool(row["without_noise"]) for row in rows), [AS_PUBLISHED]
    heaviest = max(rows, key=lambda row: row["weight"])["published"]
    of_heaviest, run_with = "published weight of the heaviest package", "the epsilon of the run"
    n.name(
        tried_as_published=n.compute("packages tried as published", len(rows), "rows of the file", files),
        printed=n.compute("weights printed exactly", bare, "rows of clusters without any noise", files),
        weight=n.compute("heaviest weight, as printed", heaviest, of_heaviest, files, "{:g} kg".format),
        epsilon=n.compute("epsilon claimed for noisy clusters", PUBLISHED_EPSILON, run_with, files),
    )
    line = (
        f"Loads     {n['records']} packages, of which at least {n['k']} look alike: {n['trucks']} trucks, "
        f"{n['optimum']} without privacy; an attacker guesses a package's truck {n['linkage']} of the time"
    )
    facts = {
        "plans": plans,
        "profile": profile,
        "frontier": frontier,
        "other_published": advice is not None and not is_advised,
    }
    return story.Story(n, line, pictures, facts)


def _name_numbers(n: story.Numbers) -> None:
    optimum = n.read("trucks needed for the true weights", UTILITY, "/plans/sealed/optimum")
    trucks = n.read("trucks of the sealed plan", UTILITY, "/plans/sealed/objective")
    over = "trucks of the sealed plan divided by those needed for the true weights, less one"
    more, worst = float(trucks) / float(optimum) - 1, "truck linkage in the worst case, upper bounds"
    n.name(
        records=n.read("packages released", CERTIFICATE, "/measures/records"),
        kept_back=n.read("packages kept back", CERTIFICATE, "/measures/suppressed/count"),
        k=n.read("k reached", CERTIFICATE, "/measures/k_reached"),
        classes=n.read("classes", CERTIFICATE, "/measures/classes"),
        loss=n.read("information loss", CERTIFICATE, "/measures/loss/total", percent),
        named=n.read("highest chance to identify a row", CERTIFICATE, "/meaning/odds/0/right_at_most", percent_at_most),
        optimum=optimum,
        trucks=trucks,
        cost=n.compute("additional trucks, sealed plan", more, over, [trucks, optimum], story.signed),
        capacity=n.read("capacity of a truck", UTILITY, "/capacity", "{:g} kg".format),
        linkage=n.finding(AUDIT, "truck linkage"),
        linkage_worst=n.finding(AUDIT, "truck linkage, worst"),
        chance=n.finding(AUDIT, "truck linkage", "baseline"),
        row=n.finding(AUDIT, "record linkage"),
        row_worst=n.finding(AUDIT, "record linkage, worst"),
        upper=n.read("truck linkage, upper bounds", UTILITY, "/plans/upper/truck_linkage/mean", percent),
        upper_worst=n.read(worst, UTILITY, "/plans/upper/truck_linkage/worst", percent),
        near=n.finding(AUDIT, f"value linkage ({QUANTITY})"),
        blind=n.finding(AUDIT, f"value linkage ({QUANTITY})", "baseline"),
    )


def _profile_table(n: story.Numbers) -> list[list[object]]:
    """Name the numbers of the profile, and compare its plan with the sealed plan of the chapter."""
    planned = n.read("trucks planned, profile", PROFILE, "/planned")
    fewest = n.read("trucks needed for the packages of the profile", PROFILE, "/optimum")
    over = "trucks planned divided by those needed for the true weights, less one"
    n.name(
        profile_trucks=planned,
        profile_fewest=fewest,
        profile_cost=n.compute(
            "additional trucks, profile", float(planned) / float(fewest) - 1, over, [planned, fewest], story.signed
        ),
        profile_epsilon=n.read("epsilon of the profile", PROFILE_CERTIFICATE, "/guarantee/epsilon"),
        profile_records=n.read("packages of the profile", PROFILE, "/packages"),
        profile_slots=n.read("slots of the profile", PROFILE_CERTIFICATE, "/measures/slots/slots"),
        profile_risk=n.read("risk of the profile", PROFILE_CERTIFICATE, "/measures/slots/risk", percent),
        profile_before=n.read("suspicion before the profile", PROFILE_CERTIFICATE, "/meaning/odds/1/before", percent),
        profile_after=n.read(
            "suspicion after the profile", PROFILE_CERTIFICATE, "/meaning/odds/1/at_most", percent_at_most
        ),
    )
    linkage = [
        n.read(f"truck linkage, profile, {part}", PROFILE, f"/truck_linkage/{part}", percent)
        for part in ("mean", "worst")
    ]
    sealed = [n[name] for name in ("records", "trucks", "optimum", "cost", "linkage", "linkage_worst")]
    own = [n["profile_records"], planned, fewest, n["profile_cost"], *linkage]
    return [["Profile of weights", *own], ["Ranges, sealed slots", *sealed]]


def _plan_table(n: story.Numbers, cards: Mapping[str, Picture]) -> tuple[list[list[object]], dict[str, Picture]]:
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        "trucks planned": ("planned", story.plain),
        "trucks used": ("objective", story.plain),
        "relative to the fewest": ("ratio", "{:.3f}".format),
        "trucks that fit": ("bins_feasible", percent),
        "truck linkage": ("truck_linkage/mean", percent),
        "truck linkage, worst case": ("truck_linkage/worst", percent),
    }
    rows: list[list[object]] = []
    pictures = {}
    for name, (title, _) in PLANS.items():
        cells = [
            n.read(f"{title}, {words}", UTILITY, f"/plans/{name}/{field}", show)
            for words, (field, show) in columns.items()
        ]
        rows.append([title, *cells])
        if name in ("mean", "sealed"):
            n.name(**{f"{name}_planned": cells[0], f"{name}_fit": cells[3]})
            pictures[name] = replace(
                cards[title],
                title=f"How full the trucks really are: {title.lower()}",
                note="",
                sources=[n.place(f"settlement-{name}/settlement.json")],
                legend=[("load", "true load"), ("over", "overloaded"), ("limit", "capacity")],
            )
    return rows, pictures
