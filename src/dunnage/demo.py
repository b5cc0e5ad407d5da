# SPDX-License-Identifier: Apache-2.0
"""The loads story end to end on generated packages: generate, publish, verify, pack, apply, and a page of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dunnage.auditing.utility import plan_utility, true_plan
from dunnage.dataset import Dataset
from dunnage.errors import CheckFailed, OutputError
from dunnage.io import load
from dunnage.pages import LoadsStory, PlanView, loads_page
from dunnage.planning.models import Model, Sealed, Standard, Stochastic
from dunnage.planning.packing import pack
from dunnage.planning.plan import Plan
from dunnage.publication import Key
from dunnage.publishing import publish
from dunnage.release import Release
from dunnage.samples import PackageSetting, generate_packages
from dunnage.settle import Settlement, apply, matched_records
from dunnage.verification import verify

REPORT = "report.html"
CAPACITY = 500.0
BY = "destination"
QUANTITY = "weight"
SEED = 2026
PLAN_SECONDS = 20.0
Progress = Callable[[str], None]
FloatArray = npt.NDArray[np.float64]

_WRITTEN = {
    "parcels.csv",
    "parcels.toml",
    "dunnage-ledger.sqlite",
    "release",
    "release.key.parquet",
    *(f"{kind}-{name}" for kind in ("plan", "settlement") for name in ("mean", "upper", "stochastic", "sealed")),
    REPORT,
}


@dataclass(frozen=True, eq=False)
class Demo:
    """What a demo run made.

    Parameters
    ----------
    report
        The page.
    lines
        What came out, one line a plan.
    """

    report: Path
    lines: tuple[str, ...]


def run_demo(
    out: str | os.PathLike[str], *, quick: bool = False, force: bool = False, progress: Progress | None = None
) -> Demo:
    """Run the demo into a new folder.

    Parameters
    ----------
    out
        Folder to make.
    quick
        Fewer packages.
    force
        Replace a folder that an earlier demo made, and nothing else.
    progress
        Called with the name of each stage.
    """
    folder = _fresh_folder(Path(out), force=force)
    tell = progress or (lambda stage: None)
    tell("generating packages")
    setting = PackageSetting(size=60 if quick else 240, destinations=3 if quick else 4, decimals=1)
    data = load(*generate_packages(setting, folder / "parcels.csv", seed=SEED))
    tell("publishing and verifying")
    release, key = publish(data, out=folder / "release")
    verification = verify(folder / "release")
    if not verification.ok:
        raise CheckFailed(verification.summary())
    truth = data.numbers(QUANTITY)[matched_records(data, release, key)]  # the true weight of each released row
    views = [
        _view(title, *_settled(folder, name, model, data, release, key, tell), data, truth)
        for title, name, model in _PLANS
    ]
    report = folder / REPORT
    _write_private(report, loads_page(_story(release, truth, views)))
    return Demo(report, tuple(_line(view) for view in views))


# title, name of the folders, model; the first is the plan without privacy
_PLANS: tuple[tuple[str, str, Model | None], ...] = (
    ("True weights", "", None),
    ("Mean", "mean", Standard(statistic="mean")),
    ("Upper bound", "upper", Standard()),
    ("Certified 95 %", "stochastic", Stochastic()),
    ("Sealed slots", "sealed", Sealed()),
)


def _settled(
    folder: Path, name: str, model: Model | None, data: Dataset, release: Release, key: Key, tell: Progress
) -> tuple[Plan, Settlement]:
    """Make one plan and apply it; both are kept, except the plan on true weights, which must not leave."""
    tell(f"packing: {name or 'true weights'}")
    if model is None:
        plan = true_plan(data, release, key, capacity=CAPACITY, by=BY)
        return plan, apply(plan, data, release, key)
    plan = pack(release, capacity=CAPACITY, by=BY, model=model, seconds=PLAN_SECONDS)
    plan.write(folder / f"plan-{name}")
    done = apply(plan, data, release, key, repair=True)
    done.write(folder / f"settlement-{name}")
    return plan, done


def _view(title: str, plan: Plan, done: Settlement, data: Dataset, truth: FloatArray) -> PlanView:
    cost = plan_utility(done, data)
    repaired = done.repair is not None
    # A plan on true weights never leaves the owner, so nobody can be told a truck by it.
    leaves = not plan.private
    return PlanView(
        title=title,
        # A sealed plan assigns no row: what is shown is how the owner filled it.
        bins=_bins(truth, done.bin_of_row if plan.bin_of_row is None else plan.bin_of_row, plan.num_bins),
        bins_repaired=_bins(truth, done.bin_of_row, len(done.final_loads)) if repaired else None,
        objective=plan.num_bins,
        bound=int(plan.bound),
        ratio=plan.num_bins / cost.optimum,
        bins_feasible=done.bins_feasible,
        plan_feasible=done.plan_feasible,
        linkage_mean=float(done.truck_linkage["mean"]) if leaves else None,
        linkage_worst=float(done.truck_linkage["worst"]) if leaves else None,
        linkage_kind=str(done.truck_linkage["kind"]) if leaves else "never leaves the owner",
        seconds=plan.seconds,
        repair=str(done.repair["sentence"]) if done.repair is not None else "",
    )


def _bins(weights: FloatArray, bin_of_row: npt.NDArray[np.int64], num_bins: int) -> list[list[float]]:
    bins: list[list[float]] = [[] for _ in range(num_bins)]
    for weight, number in zip(weights.tolist(), bin_of_row.tolist(), strict=True):
        if number >= 0:
            bins[number].append(weight)
    return bins


def _story(release: Release, truth: FloatArray, views: list[PlanView]) -> LoadsStory:
    return LoadsStory(
        title="Parcels packed without telling which is which",
        release=release,
        quantity=QUANTITY,
        truth=truth,
        capacity=CAPACITY,
        plans=views,
    )


def _line(view: PlanView) -> str:
    fits = "everything fits" if view.plan_feasible else f"{view.bins_feasible:.0%} of trucks fit"
    repaired = f", {len(view.bins_repaired)} after repair" if view.bins_repaired is not None else ""
    return f"{view.title:<14}{view.objective:>4} trucks{repaired} ({view.ratio:.3f} of the optimum); {fits}"


def _write_private(path: Path, text: str) -> None:
    """Write the page so that only its owner can read it: it shows true weights."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def _fresh_folder(folder: Path, *, force: bool) -> Path:
    """Make the folder; with ``force`` replace one that holds nothing but what a demo writes."""
    if os.path.lexists(folder):
        ours = folder.is_dir() and not folder.is_symlink() and {path.name for path in folder.iterdir()} <= _WRITTEN
        if not ours:
            raise OutputError(
                f"{folder} exists already and holds more than a demo wrote. It is left as it is: choose another place."
            )
        if not force and any(folder.iterdir()):
            raise OutputError(f"{folder} exists already. Choose another place, or replace it with --force.")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made: {error.strerror}. Choose another place.") from None
    return folder
