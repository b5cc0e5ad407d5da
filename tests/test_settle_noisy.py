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
from tests.settle_help import Published, few_repairs  # noqa: F401

import dunnage as dn
from dunnage.errors import InputError, ParameterError, ReleaseError, UserError
from dunnage.ledger import Ledger
from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
from dunnage.mechanisms.sampled_lattice import SampledLattice
from dunnage.noise.source import Noise
from dunnage.planning.linkage import exchangeable, noisy_linkage
from dunnage.planning.models import PackingModel, Standard
from dunnage.planning.packing import pack
from dunnage.planning.plan import Plan
from dunnage.planning.trucks import Truck
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


class TestLoads:
    def test_every_load_is_exact(self) -> None:
        """Ten times 0.1 is 1, whatever the noisy values say."""
        case = published([0.1] * 10 + [0.2, 0.1])
        done = case.apply(case.plan([0] * 10 + [1, 1], 1))
        assert done.plan_feasible
        assert (done.bins_feasible, done.loads.tolist()) == (1, [[1.0], [0.3]])
        case.check(done)
        tight = case.apply(case.plan([0] * 11 + [1], 1))
        assert tight.overloaded == [Overload(bin=0, quantity="weight", load=1.2, capacity=1.0)]
        assert tight.bins_feasible == 0.5
        assert tight.repair is None

    def test_key_has_no_class(self) -> None:
        case = published([1.0, 2.0, 3.0])
        assert case.key.table.column_names == ["row", "source_row", "parcel"]
        found = matched_records(case.data, case.release, case.key)
        assert found.tolist() == case.key.table.column("source_row").to_pylist()
        done = case.apply(case.plan([0, 1, 0]))
        assert done.loading.column_names == ["row", "source_row", "bin", "parcel"]

    def test_written_and_read(self, tmp_path: Path) -> None:
        case = published([30.0, 40.0, 50.0, 60.0])
        publication = Publication(case.release, case.key).write(tmp_path / "release")
        release = Release.read(tmp_path / "release")
        key = Key.read(tmp_path / "release.key.parquet")
        plan = replace(case.plan([0, 0, 1, 1]), release=publication.release.certificate.digest)
        folder = apply(plan, case.data, release, key, repair=True).write(tmp_path / "settlement")
        told = json.loads((folder / "settlement.json").read_text())
        assert told["overloaded"][0]["load"] == 110.0
        assert told["feasible"]
        assert told["repair"]["permuted"] == 0

    @pytest.mark.parametrize("num", [2, 4])
    def test_several_quantities(self, num: int) -> None:
        names = ("weight", "height", "width", "length")[:num]
        values = {name: [float(10 * i + j) for j in range(6)] for i, name in enumerate(names, 1)}
        case = published(values)
        done = case.apply(case.plan([0, 0, 1, 1, 2, 2], 45))
        assert done.loads.tolist() == [[2 * 10 * i + s for i in range(1, num + 1)] for s in (1, 5, 9)]
        assert {item.quantity for item in done.overloaded} == {"height"} | set(names[2:])
        mended = case.apply(case.plan([0, 0, 1, 1, 2, 2], 45), repair=True)
        assert mended.feasible
        case.check(mended)

    def test_plan_of_another_solver(self, tmp_path: Path) -> None:
        case = published([30.0, 40.0, 50.0])
        path = tmp_path / "their.csv"
        bins = np.array([7, 7, 9])[case.record]
        path.write_text("row,bin\n" + "".join(f"{row},{bin_}\n" for row, bin_ in enumerate(bins)))
        done = case.apply(path, capacity="60kg", repair=True)
        assert done.plan.external
        assert (done.plan.truck_linkage.kind, done.loads.tolist()) == ("estimate", [[70.0], [50.0]])
        assert done.feasible
        case.check(done)
        path.write_text("row,bin\n0,0\n")
        with pytest.raises(InputError, match="missing"):
            case.apply(path, capacity="60kg")

    def test_margin_is_the_planners_alone(self) -> None:
        """Bins that were planned with room to spare are held against what the trucks really hold."""
        case = published([50.0, 50.0])
        plan = case.plan([0, 0])
        plan = replace(plan, margin=0.25)
        assert case.apply(plan).plan_feasible


class TestRepair:
    def test_moves(self) -> None:
        case = published([60.0, 60.0, 30.0, 30.0])
        done = case.apply(case.plan([0, 0, 1, 1]), repair=True)
        assert done.feasible
        assert done.repair.moved >= 2
        assert done.repair.permuted == done.repair.opened == done.repair.left_behind == 0
        case.check(done)

    def test_opens_bins(self) -> None:
        case = published([60.0, 60.0, 60.0])
        done = case.apply(case.plan([0, 0, 1]), repair=True)
        assert done.repair.opened == 1
        assert done.feasible
        case.check(done)

    def test_leaves_behind(self) -> None:
        """Without trucks to open, the one package too many stays: the paper's own remedy."""
        case = published([60.0, 60.0, 60.0, 40.0])
        plan = case.plan([0, 0, 1, 1], count=2)
        assert not case.apply(plan, repair=True).feasible
        done = case.apply(plan, leave_behind=True)
        assert done.feasible
        assert done.repair.left_behind == 1 == done.unplanned.left_behind
        assert done.loading.column("bin").to_pylist()[-1] == -1
        assert sorted(done.final_loads[:, 0]) == [60, 100]
        case.check(done)

    def test_too_heavy_for_any_truck(self) -> None:
        """Noise may hide that a package fits nowhere."""
        case = published([90.0, 20.0, 20.0])
        plan = case.plan([0, 1, 1], 50)
        assert not case.apply(plan, repair=True).feasible
        done = case.apply(plan, leave_behind=True)
        assert done.feasible
        assert (done.unplanned.left_behind, done.loading.column("source_row").to_pylist()[-1]) == (1, 0)
        case.check(done)

    def test_public_values_stay_apart(self) -> None:
        case = published({"weight": [60.0, 60.0, 10.0, 10.0], "place": ["Dover", "Dover", "Calais", "Calais"]})
        done = case.apply(case.plan([0, 0, 1, 1], by="place"), repair=True)
        assert done.repair.opened == 1
        assert done.feasible
        places = case.release.data.column("place").to_pylist()
        bins = done.bin_of_row.tolist()
        assert len(set(zip(bins, places, strict=True))) == len(set(bins))
        case.check(done)

    def test_nothing_is_exchanged(self) -> None:
        """The only fill that keeps a noisy plan's counts is the plan itself."""
        case = published([60.0, 60.0, 30.0])
        for bins, number in (([0, 1, 1], 1), ([0, 0, 1], 0)):
            plan = case.plan(bins)
            amounts = np.array([[60.0], [60.0], [30.0]])[case.record]
            task = repair_task(plan, amounts, case.release, Noise(seed=1))
            drawn = count_and_draw(task, Noise(seed=1))
            assert drawn.exact
            assert (drawn.number, len(task.members)) == (number, 3)

    @settings(max_examples=12, deadline=None)
    @given(
        weights=st.lists(st.integers(1, 70), min_size=2, max_size=6),
        num_bins=st.integers(1, 3),
        limited=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def test_any_plan(self, weights: list[int], num_bins: int, limited: bool, seed: int) -> None:
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
        loads = [0] * num_bins
        for weight, bin_ in zip(weights, bins, strict=True):
            if bin_ >= 0:
                loads[bin_] += weight
        if max(loads) <= capacity:
            best = min(best, bins.count(-1))
    return best


class TestLinkage:
    def test_restated_on_the_final_bins(self) -> None:
        case = published([60.0, 60.0, 60.0, 40.0, 20.0, 10.0])
        plan = case.plan([0, 0, 1, 1, 2, 2], count=3)
        planned = case.apply(plan)
        expected = noisy_linkage(case.release, plan.assignment)
        assert planned.truck_linkage == expected.model_copy(update={"note": planned.truck_linkage.note})
        done = case.apply(plan, leave_behind=True)
        bins = np.where(done.bin_of_row < 0, len(done.truck_of_bin), done.bin_of_row)
        assert done.truck_linkage.mean == pytest.approx(noisy_linkage(case.release, bins).mean)
        assert "moved by their true weights" in done.truck_linkage.note
        assert "names its truck" in done.summary()

    def test_one_truck_is_known(self) -> None:
        case = published([1.0, 2.0, 3.0])
        assert case.apply(case.plan([0, 0, 0])).truck_linkage.mean == pytest.approx(1)

    def test_unknown_noise(self, tmp_path: Path) -> None:
        """The published form does not say how its noise was drawn, so nothing honest can be said."""
        case = published([10.0, 20.0, 30.0, 40.0], PUBLISHED)
        done = case.apply(case.plan([0, 0, 1, 1], 60), repair=True)
        assert done.truck_linkage is None
        assert done.feasible
        assert "unknown" in done.summary()
        done.write(tmp_path / "settlement")
        case.check(done)


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


class TestSamples:
    def test_what_was_not_released_is_split_for_the_owner(self, sample: tuple[dn.Dataset, Release, Key]) -> None:
        data, release, key = sample
        plan = pack(release, capacity=200)
        done = apply(plan, data, release, key, repair=True)
        assert done.feasible
        outside = done.unplanned
        assert outside.unsampled == key.facts["unsampled"] > 0
        assert outside.suppressed == key.facts["suppressed"]
        assert outside.count == len(data) - len(release)
        assert f"{outside.unsampled} unsampled" in done.summary()
        # The planner is told nothing of those.
        assert "unsampled" not in json.dumps(plan.to_dict())
        assert not plan.unplanned.suppressed

    def test_loads_are_those_of_the_sampled_records(self, sample: tuple[dn.Dataset, Release, Key]) -> None:
        data, release, key = sample
        plan = pack(release, capacity=200)
        for strange in (-1, 1000, "12", None, 1.5):  # facts that are not believed
            done = apply(plan, data, release, replace(key, facts={"unsampled": strange}))
            assert done.unplanned.unsampled is None
            assert done.unplanned.suppressed == len(data) - len(release)
        done = apply(plan, data, release, key)
        weights = data.numbers("weight")
        table = done.loading.to_pydict()
        sums = [Fraction(0)] * done.plan.num_bins
        for source, bin_ in zip(table["source_row"], table["bin"], strict=True):
            sums[bin_] += Fraction(str(weights[source]))
        assert done.loads[:, 0].tolist() == [float(total) for total in sums]

    def test_noisy_rows_beside_classes(self) -> None:
        """Rows that the sample left out are planned by their noise, exchanged with none, and all packages travel."""
        mechanism = SampledLattice(k=4, beta=0.6, epsilon_choice=9, left_out="noisy", left_out_epsilon=5)
        data, release, key = sampled(mechanism, 60)
        assert len(release) == len(data)
        class_id = release.data.column("class_id").to_numpy()
        assert len(np.unique(exchangeable(release))) == len(np.unique(class_id[class_id >= 0])) + (class_id < 0).sum()
        bins = np.arange(len(release)) // 2
        plan = Plan(
            release=release.certificate.digest,
            bin_of_row=bins,
            truck_of_bin=("truck",) * (int(bins.max()) + 1),
            trucks=(Truck(name="truck", capacity={"weight": 110.0}),),
            model=PackingModel(name="by hand"),
            bound=1,
            seconds=0.0,
            quantities={"weight": "kg"},
        )
        done = apply(plan, data, release, key, repair=True)
        assert done.feasible
        assert done.repair is not None
        assert (done.unplanned.count, done.truck_linkage.kind) == (0, "estimate")
        planned = apply(plan, data, release, key)
        stated = noisy_linkage(release, bins)  # nothing was moved
        assert (planned.truck_linkage.mean, planned.truck_linkage.worst) == (stated.mean, stated.worst)
        assert "if_seen_to_fit" not in planned.truck_linkage


class TestPacked:
    """Plans as pack makes them, applied."""

    @pytest.mark.parametrize("statistic", ["upper", "mean"])
    def test_standard(self, statistic: str) -> None:
        rng = np.random.default_rng(3)
        case = published(np.round(rng.uniform(5, 60, 60), 1).tolist(), NoisyValues(epsilon=20))
        done = case.apply(pack(case.release, capacity=150, model=Standard(statistic=statistic)), repair=True)
        assert done.feasible
        case.check(done)

    def test_margin(self) -> None:
        """Trucks are planned less than full, and held against what they really hold."""
        case = published([50.0] * 8, NoisyValues(epsilon=50))
        plan = pack(case.release, capacity=100, model=Standard(statistic="mean"), margin=0.3)
        done = case.apply(plan)
        assert done.final_capacities.max() == 100
        case.check(done)


class TestRefusals:
    def test_wrong_keys(self) -> None:
        case, other = published([10.0, 20.0, 30.0]), published([10.0, 20.0, 30.0])
        plan = case.plan([0, 0, 1])
        with pytest.raises(ReleaseError, match="not made from these rows"):
            apply(plan, published([10.0, 20.0, 30.1]).data, case.release, case.key)
        with pytest.raises(ReleaseError, match="does not fit"):
            apply(plan, case.data, case.release, replace(case.key, table=case.key.table.slice(1)))
        with pytest.raises(ReleaseError, match="lacks a column"):
            apply(plan, case.data, case.release, replace(case.key, table=case.key.table.drop(["source_row"])))
        with pytest.raises(ReleaseError, match="another release"):
            apply(plan, case.data, case.release, replace(other.key, certificate_digest="0" * 64))

    def test_key_without_classes_is_none_of_a_release_with_some(self) -> None:
        data = published([10.0, 20.0, 30.0, 40.0]).data
        release, key = dn.publish(data, ledger=":memory:")
        with pytest.raises(ReleaseError, match="lacks a column"):
            matched_records(data, release, replace(key, table=key.table.drop(["class_id"])))

    def test_nothing_private_in_errors(self, tmp_path: Path) -> None:
        case = published([12.3, 45.6, 78.9])
        attempts: list[tuple[Any, dict[str, Any]]] = [
            (replace(case.plan([0, 0, 1]), release="other"), {}),
            (case.plan([0, 0, 1]), {"capacity": 5, "trucks": ()}),
            (replace(case.plan([0, 0, 1]), quantities={"volume": ""}), {}),
            (replace(case.plan([0, 0, 1]), bin_of_row=np.array([0, 1])), {}),
            (replace(case.plan([0, 0, 1]), by="parcel"), {}),
            (tmp_path / "none.csv", {"capacity": 5}),
        ]
        for plan, more in attempts:
            with pytest.raises(UserError) as caught:
                case.apply(plan, **more)
            assert not any(text in str(caught.value) for text in ("12.3", "45.6", "78.9", "CANARY"))

    def test_strange_public_column(self) -> None:
        case = published([10.0, 20.0])
        with pytest.raises(ParameterError, match="no public column"):
            case.apply(case.plan([0, 1], by="weight"))


def with_classes(class_id: Sequence[int], **columns: Sequence[Any]) -> Release:
    """Make a release that has these classes, -1 for noisy rows."""
    case = published({"weight": [1.0] * max(len(class_id), 1), "place": ["x"] * max(len(class_id), 1)})
    table = pa.table({"row": np.arange(len(class_id)), "class_id": np.array(class_id, dtype=np.int64), **columns})
    return replace(case.release, data=table)


class TestClasses:
    def test_noisy_rows_are_classes_of_their_own(self) -> None:
        case = published([1.0, 1.0, 1.0])
        assert case.release.class_of_row.tolist() == exchangeable(case.release).tolist() == [0, 1, 2]

    def test_rows_of_no_class_beside_classes(self) -> None:
        release = with_classes([1, -1, 0, 1, -1, 0], place=list("aabaab"))
        assert release.class_of_row.tolist() == [1, 2, 0, 1, 3, 0]
        assert exchangeable(release).tolist() == [1, 2, 0, 1, 3, 0]
        apart = with_classes([0, 0, 0, -1], place=list("abab"))
        assert exchangeable(apart).tolist() == [0, 1, 0, 2]

    def test_only_noisy_rows_and_none(self) -> None:
        assert with_classes([-1, -1], place=["a", "a"]).class_of_row.tolist() == [0, 1]
        empty = with_classes([], place=pa.array([], pa.string()))
        assert len(exchangeable(empty)) == len(empty.class_of_row) == 0

    def test_no_row_to_load(self) -> None:
        case = published([1.0])
        release = replace(case.release, data=case.release.data.slice(0, 0))
        key = replace(case.key, table=case.key.table.slice(0, 0))
        with pytest.raises(ReleaseError, match="no row"):
            apply(case.plan([0]), case.data, release, key)
