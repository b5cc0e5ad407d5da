"""apply on noisy and sampled releases: rows of no class, exact loads, repairs without exchanges, linkage restated."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import WEIGHT
from tests.settle_help import Published

import dunnage as dn
from dunnage.errors import InputError, ReleaseError, UserError
from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.noise.source import Noise
from dunnage.planning.linkage import exchangeable, noisy_linkage
from dunnage.planning.models import Standard
from dunnage.planning.packing import pack
from dunnage.publication import Key, Publication
from dunnage.release import Release
from dunnage.settle import Overload, apply, matched_records
from dunnage.settle.repair import count_and_draw, repair_task

VALUES = NoisyValues(epsilon=2)
PUBLISHED = NoisyClusters(epsilon=1, quantiles=[0.5], as_published=True)


def published(columns: Mapping[str, Sequence[Any]] | Sequence[float], mechanism: Any = VALUES) -> Published:
    """Release quantities on a grid of 0.1 and, if it is there, a public place."""
    named = columns if isinstance(columns, Mapping) else {"weight": columns}
    return Published(named, mechanism=mechanism, roles={name: WEIGHT for name in named if name != "place"})


def test_loads_are_exact_and_keys_have_no_class(tmp_path: Path) -> None:
    # Ten times 0.1 is 1, whatever the noisy values say.
    case = published([0.1] * 10 + [0.2, 0.1])
    assert case.key.table.column_names == ["row", "source_row", "parcel"]
    assert (case.record + 1).tolist() == case.key.table.column("source_row").to_pylist()
    done = case.settle(case.plan([0] * 10 + [1, 1], 1))
    assert (done.plan_feasible, done.bins_feasible, done.loads.tolist()) == (True, 1, [[1.0], [0.3]])
    assert done.loading.column_names == ["row", "source_row", "bin", "parcel"]
    tight = case.apply(case.plan([0] * 11 + [1], 1))
    assert tight.overloaded == [Overload(bin=0, quantity="weight", load=1.2, capacity=1.0)]
    assert (tight.bins_feasible, tight.repair) == (0.5, None)
    case = published([30.0, 40.0, 50.0, 60.0])
    publication = Publication(case.release, case.key).write(tmp_path / "release")
    release, key = Release.read(tmp_path / "release"), Key.read(tmp_path / "release.key.parquet")
    plan = replace(case.plan([0, 0, 1, 1]), release=publication.release.certificate.digest)
    folder = apply(plan, case.data, release, key, repair=True).write(tmp_path / "settlement")
    told = json.loads((folder / "settlement.json").read_text())
    assert (told["overloaded"][0]["load"], told["feasible"], told["repair"]["permuted"]) == (110.0, True, 0)
    case = published([30.0, 40.0, 50.0])
    path = tmp_path / "their.csv"
    bins = np.array([7, 7, 9])[case.record]
    path.write_text("row,bin\n" + "".join(f"{row},{bin_}\n" for row, bin_ in enumerate(bins)))
    done = case.settle(path, capacity="60kg", repair=True)
    assert (done.plan.external, done.plan.truck_linkage.kind, done.feasible) == (True, "estimate", True)
    assert done.loads.tolist() == [[70.0], [50.0]]
    path.write_text("row,bin\n0,0\n")
    with pytest.raises(InputError):
        case.apply(path, capacity="60kg")


@pytest.mark.parametrize("num", [2, 4])
def test_several_quantities(num: int) -> None:
    names = ("weight", "height", "width", "length")[:num]
    case = published({name: [float(10 * i + j) for j in range(6)] for i, name in enumerate(names, 1)})
    plan = case.plan([0, 0, 1, 1, 2, 2], 45)
    done = case.apply(plan)
    assert done.loads.tolist() == [[2 * 10 * i + s for i in range(1, num + 1)] for s in (1, 5, 9)]
    assert {item.quantity for item in done.overloaded} == {"height"} | set(names[2:])
    assert case.settle(plan, repair=True).feasible


def test_repairs_move_open_and_leave_behind() -> None:
    case = published([60.0, 60.0, 30.0, 30.0])
    done = case.settle(case.plan([0, 0, 1, 1]), repair=True)
    assert (done.feasible, done.repair.moved >= 2) == (True, True)
    assert done.repair.permuted == done.repair.opened == done.repair.left_behind == 0
    case = published([60.0, 60.0, 60.0])
    done = case.settle(case.plan([0, 0, 1]), repair=True)
    assert (done.feasible, done.repair.opened) == (True, 1)
    case = published({"weight": [60.0, 60.0, 10.0, 10.0], "place": ["Dover", "Dover", "Calais", "Calais"]})
    done = case.settle(case.plan([0, 0, 1, 1], by="place"), repair=True)
    assert (done.feasible, done.repair.opened) == (True, 1)  # places stay apart, which settle checks
    # Without trucks to open, the one package too many stays: the paper's own remedy.
    case = published([60.0, 60.0, 60.0, 40.0])
    plan = case.plan([0, 0, 1, 1], count=2)
    assert not case.apply(plan, repair=True).feasible
    done = case.settle(plan, leave_behind=True)
    assert done.feasible
    assert done.repair.left_behind == 1 == done.unplanned.left_behind
    assert (done.loading.column("bin").to_pylist()[-1], sorted(done.final_loads[:, 0])) == (-1, [60, 100])
    # Noise may hide that a package fits nowhere.
    case = published([90.0, 20.0, 20.0])
    plan = case.plan([0, 1, 1], 50)
    assert not case.apply(plan, repair=True).feasible
    done = case.settle(plan, leave_behind=True)
    assert (done.feasible, done.unplanned.left_behind) == (True, 1)
    assert done.loading.column("source_row").to_pylist()[-1] == 1


def test_nothing_is_exchanged_and_linkage_is_restated(tmp_path: Path) -> None:
    # The only fill that keeps a noisy plan's counts is the plan itself.
    case = published([60.0, 60.0, 30.0])
    amounts = np.array([[60.0], [60.0], [30.0]])[case.record]
    for bins, number in (([0, 1, 1], 1), ([0, 0, 1], 0)):
        task = repair_task(case.plan(bins), amounts, case.release, Noise(seed=1))
        drawn = count_and_draw(task, Noise(seed=1))
        assert (drawn.exact, drawn.number, len(task.members)) == (True, number, 3)
    case = published([60.0, 60.0, 60.0, 40.0, 20.0, 10.0])
    plan = case.plan([0, 0, 1, 1, 2, 2], count=3)
    planned, expected = case.apply(plan).truck_linkage, noisy_linkage(case.release, plan.assignment)
    assert planned == expected.model_copy(update={"note": planned.note})
    done = case.apply(plan, leave_behind=True)
    bins = np.where(done.bin_of_row < 0, len(done.truck_of_bin), done.bin_of_row)
    assert done.truck_linkage.mean == pytest.approx(noisy_linkage(case.release, bins).mean)
    case = published([1.0, 2.0, 3.0])
    assert case.apply(case.plan([0, 0, 0])).truck_linkage.mean == pytest.approx(1)
    # The published form does not say how its noise was drawn, so nothing honest can be said.
    case = published([10.0, 20.0, 30.0, 40.0], PUBLISHED)
    done = case.settle(case.plan([0, 0, 1, 1], 60), repair=True)
    assert (done.truck_linkage, done.feasible) == (None, True)
    done.write(tmp_path / "settlement")


@settings(max_examples=12, deadline=None)
@given(
    weights=st.lists(st.integers(1, 70), min_size=2, max_size=6),
    num_bins=st.integers(1, 3),
    limited=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_plan(weights: list[int], num_bins: int, limited: bool, seed: int) -> None:
    """A repair fits if one exists, and no repair leaves fewer behind than the best of all assignments."""
    case = published([float(weight) for weight in weights])
    rng = np.random.default_rng(seed)
    bins = np.unique(rng.integers(0, num_bins, len(weights)), return_inverse=True)[1].tolist()
    count = max(bins) + 1
    plan = case.plan(bins, 60, count=count if limited else None)
    done = case.apply(plan, leave_behind=True)
    assert done.feasible
    case.check(done)
    least = fewest_left(weights, 60, count if limited else len(weights))
    assert done.unplanned.left_behind >= least
    if not least and case.apply(plan).plan_feasible is False:
        assert case.apply(plan, repair=True).feasible


def fewest_left(weights: Sequence[int], capacity: int, num_bins: int) -> int:
    """Try every assignment to bins or to none."""
    best = len(weights)
    for bins in itertools.product(range(-1, min(num_bins, len(weights))), repeat=len(weights)):
        loads = [sum(w for w, b in zip(weights, bins, strict=True) if b == bin_) for bin_ in range(num_bins)]
        best = min(best, bins.count(-1)) if max(loads) <= capacity else best
    return best


def sampled(mechanism: SampledLattice, num: int = 120) -> tuple[dn.Dataset, Release, Key]:
    """Release a sample that keeps something."""
    data = published([float(row * 37 % 200) / 2 for row in range(num)]).data
    while True:
        release, key = mechanism.release(data, ledger=Ledger(":memory:"), noise=Noise())
        if release.classes.num_rows:
            return data, release, key


@pytest.fixture(scope="module")
def sample() -> tuple[dn.Dataset, Release, Key]:
    return sampled(SampledLattice(k=4, beta=0.6, epsilon_choice=9))


def test_samples_are_settled_and_the_rest_is_split_for_the_owner(sample: tuple[dn.Dataset, Release, Key]) -> None:
    data, release, key = sample
    plan = pack(release, capacity=200)
    done = apply(plan, data, release, key, repair=True)
    assert done.feasible
    outside = done.unplanned
    assert outside.unsampled == key.facts["unsampled"] > 0
    assert (outside.suppressed, outside.count) == (key.facts["suppressed"], len(data) - len(release))
    # The planner is told nothing of those.
    assert "unsampled" not in json.dumps(plan.to_dict())
    assert not plan.unplanned.suppressed
    for strange in (-1, 1000, "12", None, 1.5):  # facts that are not believed
        done = apply(plan, data, release, replace(key, facts={"unsampled": strange}))
        assert (done.unplanned.unsampled, done.unplanned.suppressed) == (None, len(data) - len(release))
    done = apply(plan, data, release, key)
    weights = data.numbers("weight")
    table = done.loading.to_pydict()
    sums = [Fraction(0)] * done.plan.num_bins
    for source, bin_ in zip(table["source_row"], table["bin"], strict=True):
        sums[bin_] += Fraction(str(weights[source - 1]))
    assert done.loads[:, 0].tolist() == [float(total) for total in sums]


def test_noisy_rows_beside_classes() -> None:
    """Rows that the sample left out are planned by their noise, exchanged with none, and all packages travel."""
    mechanism = SampledLattice(k=4, beta=0.6, epsilon_choice=9, left_out="noisy", left_out_epsilon=5)
    data, release, key = sampled(mechanism, 60)
    assert len(release) == len(data)
    class_id = release.data.column("class_id").to_numpy()
    assert len(np.unique(exchangeable(release))) == len(np.unique(class_id[class_id >= 0])) + (class_id < 0).sum()
    bins = np.arange(len(release)) // 2
    plan = published([0.0, 1.0]).plan([0, 1], 110)
    names = ("truck",) * (int(bins.max()) + 1)
    plan = replace(plan, release=release.certificate.digest, bin_of_row=bins, truck_of_bin=names)
    done = apply(plan, data, release, key, repair=True)
    assert done.feasible
    assert done.repair is not None
    assert (done.unplanned.count, done.truck_linkage.kind) == (0, "estimate")
    planned, stated = apply(plan, data, release, key), noisy_linkage(release, bins)  # nothing was moved
    assert (planned.truck_linkage.mean, planned.truck_linkage.worst) == (stated.mean, stated.worst)
    assert "if_seen_to_fit" not in planned.truck_linkage


@pytest.mark.parametrize("statistic", ["upper", "mean"])
def test_plans_as_pack_makes_them(statistic: str) -> None:
    rng = np.random.default_rng(3)
    case = published(np.round(rng.uniform(5, 60, 60), 1).tolist(), NoisyValues(epsilon=20))
    plan = pack(case.release, capacity=150, model=Standard(statistic=statistic), margin=0.3)
    done = case.settle(plan, repair=True)  # planned with room to spare, held against what the trucks really hold
    assert (done.feasible, done.final_capacities.max()) == (True, 150)


def test_wrong_keys_and_plans_are_refused(tmp_path: Path) -> None:
    case, other = published([12.3, 45.6, 78.9]), published([12.3, 45.6, 78.9])
    plan, key = case.plan([0, 0, 1]), case.key
    for data, wrong in (
        (published([12.3, 45.6, 79.0]).data, key),
        (case.data, replace(key, table=key.table.slice(1))),
        (case.data, replace(key, table=key.table.drop(["source_row"]))),
        (case.data, replace(other.key, certificate_digest="0" * 64)),
    ):
        with pytest.raises(ReleaseError):
            apply(plan, data, case.release, wrong)
    release, key = dn.publish(case.data, ledger=":memory:")  # has classes, which its key must have too
    with pytest.raises(ReleaseError):
        matched_records(case.data, release, replace(key, table=key.table.drop(["class_id"])))
    attempts: list[tuple[Any, dict[str, Any]]] = [
        (replace(plan, release="other"), {}),
        (plan, {"capacity": 5, "trucks": ()}),
        (replace(plan, quantities={"volume": ""}), {}),
        (replace(plan, bin_of_row=np.array([0, 1])), {}),
        (replace(plan, by="parcel"), {}),
        (replace(plan, by="weight"), {}),
        (tmp_path / "none.csv", {"capacity": 5}),
    ]
    for wrong, more in attempts:
        with pytest.raises(UserError) as caught:
            case.apply(wrong, **more)
        assert not any(text in str(caught.value) for text in ("12.3", "45.6", "78.9", "CANARY"))
    empty, none = (
        replace(case.release, data=case.release.data.slice(0, 0)),
        replace(case.key, table=case.key.table.slice(0, 0)),
    )
    with pytest.raises(ReleaseError):
        apply(case.plan([0, 0, 0]), case.data, empty, none)


def with_classes(class_id: Sequence[int], **columns: Sequence[Any]) -> Release:
    """Make a release that has these classes, -1 for noisy rows."""
    case = published({"weight": [1.0] * max(len(class_id), 1), "place": ["x"] * max(len(class_id), 1)})
    table = pa.table({"row": np.arange(len(class_id)), "class_id": np.array(class_id, dtype=np.int64), **columns})
    return replace(case.release, data=table)


def test_rows_of_no_class_are_classes_of_their_own() -> None:
    case = published([1.0, 1.0, 1.0])
    assert case.release.class_of_row.tolist() == exchangeable(case.release).tolist() == [0, 1, 2]
    release = with_classes([1, -1, 0, 1, -1, 0], place=list("aabaab"))
    assert release.class_of_row.tolist() == [1, 2, 0, 1, 3, 0]
    assert exchangeable(release).tolist() == [1, 2, 0, 1, 3, 0]
    apart = with_classes([0, 0, 0, -1], place=list("abab"))
    assert exchangeable(apart).tolist() == [0, 1, 0, 2]
    assert with_classes([-1, -1], place=["a", "a"]).class_of_row.tolist() == [0, 1]
    empty = with_classes([], place=pa.array([], pa.string()))
    assert len(exchangeable(empty)) == len(empty.class_of_row) == 0
