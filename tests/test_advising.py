# SPDX-License-Identifier: Apache-2.0
"""advise: frontiers, sweeping, recommending, policies to begin and to end with, and the goals trucks and distortion."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from dunnage.advising import advice, rows, sweep
from dunnage.advising.advice import DISTORTION, NUMBER_ERROR, TRUCKS, choose, limit_of, share_of
from dunnage.advising.frontier import OVERLOADED, Failure, Frontier, Limit, Measure, Point
from dunnage.advising.policies import BasePolicy
from dunnage.advising.rows import RowSubject
from dunnage.advising.sweep import AdviceRequest, Cache, Candidate, Draw, Goal, Reference, Subject
from dunnage.auditing.plans import plan_utility
from dunnage.errors import InputError, NoPlanError, OutputError, ParameterError, PolicyError
from dunnage.ledger import Ledger
from dunnage.model.domains import Numeric
from dunnage.model.policy import Policy
from dunnage.noise.source import Noise
from dunnage.planning.models import Sealed, Standard
from dunnage.planning.packing import pack
from dunnage.publishing import mechanism_of, publish
from dunnage.samples import like
from dunnage.settle import apply
from dunnage.tables.dataset import Dataset, draft, load

POLICY = """# kept
dataset = "parcels"
protects = "package"

[attributes.parcel]
role = "identifier"

[attributes.port]
role = "public"

[attributes.weight]           # kept too
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
resolution = 1
doubling = 5
unit = "kg"
"""
BLANK = """
[mechanism]
name = "partition"
k = ""
"""


def _rows(number: int = 40) -> str:
    generator = np.random.default_rng(7)
    weights = generator.integers(10, 60, number)
    lines = [f"P{row},{'AB'[row % 2]},{weight}" for row, weight in enumerate(weights.tolist())]
    return "\n".join(["parcel,port,weight", *lines, ""])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give a folder with parcels and a policy whose mechanism is blank."""
    (tmp_path / "parcels.csv").write_text(_rows())
    (tmp_path / "base.toml").write_text(POLICY + BLANK)
    return tmp_path


def _asked(place: Path, **more: Any) -> AdviceRequest:
    given = {"capacity": ("100kg",), "draws": 2, "quick": True, **more}
    return AdviceRequest(data=place / "parcels.csv", base=BasePolicy.read(place / "base.toml"), **given)


def _point(name: str, cost: float, risk: float, **more: Any) -> Point:
    usual: dict[str, Any] = {"mechanism": "partition", "parameters": {"k": 5}, "plan": {}, "basis": "proved"}
    usual |= {"guarantee": "k-anonymity, k 5", "measured_on": "data", "draws": 3, "figures": {}, "seconds": 0.5}
    usual["cost"] = Measure(value=cost, lower=cost - 0.01, upper=cost + 0.01)
    usual["risk"] = Measure(value=risk, lower=risk, upper=risk)
    return Point(name=name, **{**usual, **more})


def _frontier(*points: Point, **more: Any) -> Frontier:
    words = {"dataset": "parcels", "goal": "trucks", "cost_name": "trucks", "cost_unit": "more trucks"}
    words |= {"cost_baseline": "10 trucks", "risk_name": "truck linkage"}
    return Frontier(points=points, **{**words, "risk_without_privacy": 1.0, "risk_of_chance": 0.1, **more})


# --- Measures ------------------------------------------------------------------------------------------------------


def test_intervals_are_those_of_two_means_and_never_narrower_than_one_more_in_one_draw():
    draws = [1.0, 2.0, 4.0, 3.0]
    reach = stats.t(3).ppf(0.995) * np.std(draws, ddof=1) * np.sqrt(2 / 4)
    found = Measure.of(draws)
    assert (found.value, found.lower, found.upper) == (2.5, pytest.approx(2.5 - reach), pytest.approx(2.5 + reach))
    assert Measure.of([0.0] * 5, step=0.1) == Measure(value=0.0, lower=-0.02, upper=0.02)
    assert Measure.of([0.0] * 5, step=0.1, least=0.0).lower == 0.0
    assert Measure.of([0.5] * 5) == Measure(value=0.5, lower=0.5, upper=0.5)
    assert Measure.of([0.5] * 5, step=0.1, reach=0.1) == Measure(value=0.5, lower=0.4, upper=0.6)
    assert Measure.of([1.0, 1.0, 0.9], most=1.0).upper == 1.0
    for wrong in ({"value": 1, "lower": 2, "upper": 3}, {"value": 1, "lower": 1, "upper": float("inf")}):
        with pytest.raises(ValidationError):
            Measure(**wrong)


def test_second_measurement_falls_into_the_interval_with_99_percent():
    generator = np.random.default_rng(1)
    num = 3000
    first, second = generator.normal(0, 1, (num, 3)), generator.normal(0, 1, (num, 3))
    measures = [Measure.of(row.tolist()) for row in first]
    hits = sum(item.lower <= other <= item.upper for item, other in zip(measures, second.mean(axis=1), strict=True))
    assert stats.binomtest(hits, num, 0.99).pvalue > 1e-9


# --- Frontiers -----------------------------------------------------------------------------------------------------

_GRID = st.sampled_from([0.0, 0.1, 0.2, 0.3])


@given(st.lists(st.tuples(_GRID, _GRID, st.sampled_from(["data", "sample", "generated"])), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_dominated_points_are_those_that_another_of_the_same_kind_beats(figures):
    points = [_point(str(number), cost, risk, measured_on=on) for number, (cost, risk, on) in enumerate(figures)]
    for point, (cost, risk, on) in zip(_frontier(*points).points, figures, strict=True):
        better = [(c, r) for c, r, kind in figures if kind == on and c <= cost and r <= risk and (c, r) != (cost, risk)]
        assert point.dominated == bool(better)


def test_frontier_is_written_for_its_owner_alone_and_read_back(tmp_path):
    points = (
        _point("a", 0.0, 0.5, figures={"trucks": 3.0}),
        _point("b", 0.1, 0.1, figures={"trucks": 4.0, "optimum": 3.0}),
    )
    made = _frontier(
        *points,
        failed=(Failure(name="c", why="too few."),),
        recommended="b",
        meets_limit=True,
        says=("One.", "Two."),
        policy="dataset = 1\n",
        limit=Limit(max_risk=0.2),
        seconds=1.5,
    )
    folder = made.write(tmp_path / "frontier", page="<html></html>")
    assert Frontier.read(folder) == made
    names = {"frontier.json", "frontier.csv", "frontier.html", "policy.toml"}
    assert {path.name for path in folder.iterdir()} == names
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    lines = (folder / "frontier.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("seconds,trucks,optimum")
    with pytest.raises(OutputError):
        made.write(folder)
    made.write(folder, force=True)
    assert "* b" in made.summary()
    beaten = _frontier(_point("void", 0.0, 0.1, basis="void"), _point("b", 0.1, 0.2), recommended="b")
    assert beaten.point("b").dominated
    assert "* b" in beaten.summary()
    assert beaten.table().splitlines()[2].startswith("b,")
    assert "Two." in made.summary()


def test_other_files_are_no_frontier(tmp_path):
    with pytest.raises(InputError):
        Frontier.read(tmp_path / "nothing")
    for content in ("", "{}", "[1]", '{"format": 1, "kind": "frontier"}', '{"format": 2, "kind": "frontier"}'):
        (tmp_path / "frontier.json").write_text(content)
        with pytest.raises(InputError):
            Frontier.read(tmp_path)


def test_names_of_points_are_unique_and_the_recommended_one_exists():
    for points, more in (((_point("a", 0, 0), _point("a", 1, 0)), {}), ((_point("a", 0, 0),), {"recommended": "b"})):
        with pytest.raises(ValidationError):
            _frontier(*points, **more)
    found = _frontier(_point("a", 0, 0))
    assert "private" in repr(found) == str(found)


# --- Recommending --------------------------------------------------------------------------------------------------


def test_shares_and_limits_are_read():
    for text, value in (("5%", 0.05), ("1/20", 0.05), ("0.05", 0.05), (".5 %", 0.005), (0.1, 0.1)):
        assert share_of(text, "max_cost") == pytest.approx(value)
    for text in ("", "five", "-1", "1/0", "5%%", "nan", "inf"):
        with pytest.raises(ParameterError):
            share_of(text, "max_cost")
    with pytest.raises(ParameterError):
        limit_of(None, "5")
    limit = limit_of(None, None)
    assert (limit.max_cost, limit.max_risk, limit.asked) == (0.05, None, False)


_BASES = st.sampled_from(["proved", "claimed", "void"])


@given(
    st.lists(st.tuples(_GRID, _GRID, _BASES), min_size=1, max_size=7),
    st.sampled_from([None, 0.05, 0.15]),
    st.sampled_from([None, 0.05, 0.15]),
)
@settings(max_examples=150, deadline=None)
def test_choice_is_the_best_that_keeps_to_the_limit(figures, max_cost, max_risk):
    limit = limit_of(max_cost, max_risk)
    points = [_point(str(number), cost, risk, basis=basis) for number, (cost, risk, basis) in enumerate(figures)]
    found = choose(points, limit)

    def fits(point: Point) -> bool:
        return (limit.max_cost is None or point.cost.upper <= limit.max_cost) and (
            limit.max_risk is None or point.risk.upper <= limit.max_risk
        )

    fitting = [point for point in points if fits(point) and point.basis != "void"]
    assert found.meets_limit == bool(fitting)
    if not fitting:
        assert (found.point is None) == all(point.basis == "void" for point in points)
        return
    fitting = [point for point in fitting if point.basis == "proved"] or fitting
    kind = "risk" if limit.max_cost is not None else "cost"
    assert found.point in fitting
    assert getattr(found.point, kind).value == min(getattr(point, kind).value for point in fitting)


def test_plan_that_must_be_mended_is_not_recommended_while_another_is_there():
    limit = limit_of("5%", None)
    mended = _point("mended", 0.0, 0.0, figures={OVERLOADED: 0.5})
    assert choose([mended, _point("sound", 0.0, 0.3)], limit).point.name == "sound"
    assert choose([mended], limit).point.name == "mended"
    worse = _point("worse", 0.1, 0.1, figures={OVERLOADED: 0.2})
    found = _frontier(mended, worse, _point("sound", 0.0, 0.3))
    assert [point.dominated for point in found.points] == [False, True, False]


# --- Policies ------------------------------------------------------------------------------------------------------


def test_policy_may_come_without_a_mechanism_or_with_a_blank_one(tmp_path):
    path, out = tmp_path / "p.toml", tmp_path / "out.toml"
    for mechanism in ("", BLANK, '[mechanism]\nname = "partition"\nk = 5\n', "mechanism = {}\n"):
        inline = mechanism.startswith("mechanism")
        path.write_text(mechanism + POLICY if inline else POLICY + mechanism)
        base = BasePolicy.read(path)
        assert base.policy({"name": "partition", "k": 3}).mechanism == {"name": "partition", "k": 3}
        out.write_text(base.text_with({"mechanism": {"name": "noisy-values", "epsilon": 0.5}}, notes=["Said.", ""]))
        read = Policy.read(out)
        assert dict(read.mechanism) == {"name": "noisy-values", "epsilon": pytest.approx(0.5)}
        assert read.schema == base.policy({"name": "partition", "k": 2}).schema
        assert out.read_text().startswith("# Said.\n#\n")
        assert inline or "# kept too" in out.read_text()


def test_a_blank_draft_says_what_to_fill_in_but_for_the_mechanism(place):
    (place / "draft.toml").write_text(draft(place / "parcels.csv"))
    with pytest.raises(PolicyError) as error:
        BasePolicy.read(place / "draft.toml").policy({"name": "partition", "k": 2})
    places = [problem.where for problem in error.value.problems]
    assert "attributes.weight.role" in places
    assert not any(where.startswith("mechanism") for where in places)


def test_files_of_a_policy_are_found_from_its_new_place(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "a" / "goods.csv").write_text("tea,drinks,*\nale,drinks,*\nham,food,*\n")
    (tmp_path / "a" / "net.csv").write_text("from,to\nx,y\ny,z\n")
    (tmp_path / "a" / "p.toml").write_text(
        'dataset = "d"\nprotects = "row"\n'
        '[attributes.goods]\nrole = "quasi-identifier"\nkind = "tree"\nhierarchy = "goods.csv"  # levels\n'
        "[attributes.stop]\nrole = 'quasi-identifier'\nkind = 'graph'\nedges = '../a/net.csv'\n"
        '[attributes.name]\nrole = "drop"\n'
    )
    base = BasePolicy.read(tmp_path / "a" / "p.toml")
    tables = {"mechanism": {"name": "utility-clusters", "k": 2, "importance": {"goods": 2}}}
    for folder, inside in ((tmp_path / "out", "../a/goods.csv"), (None, str(tmp_path / "a" / "goods.csv"))):
        text = base.text_with(tables, place=folder)
        path = (folder or tmp_path) / "policy.toml"
        path.write_text(text)
        assert Policy.read(path).schema == base.policy({"name": "partition", "k": 2}).schema
        assert f'hierarchy = "{inside}"  # levels' in text


# --- Sweeping ------------------------------------------------------------------------------------------------------


class Measured:
    """Measures tasks, and remembers which."""

    def __init__(self, *, refuses: str = "", stops_at: str = "") -> None:
        self.names: list[str] = []
        self.refuses, self.stops_at = refuses, stops_at

    def __call__(self, task: Candidate) -> Point:
        """Measure a task."""
        if task.name == self.stops_at:
            raise KeyboardInterrupt
        self.names.append(task.name)
        if task.name == self.refuses:
            raise NoPlanError("no such plan.")
        return _point(task.name, 0.1, 0.2)


def _tasks(names: str = "abcd") -> list[Candidate]:
    return [
        Candidate(name=name, mechanism="partition", parameters={"k": 2}, guarantee="k-anonymity, k 2", basis="proved")
        for name in names
    ]


def test_interrupted_sweep_continues_and_failures_do_not_end_it(tmp_path):
    folder, first = tmp_path / "f.partial", Measured(refuses="b", stops_at="c")
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(_tasks(), first, cache=Cache.open(folder, "same"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "points.jsonl").stat().st_mode) == 0o600
    with (folder / "points.jsonl").open("a") as stream:
        stream.write('{"point": {"name": "c", ')  # cut off
    lines: list[str] = []
    second = Measured()
    store = Cache.open(folder, "same")
    points, failed = sweep.sweep(_tasks(), second, cache=store, progress=lines.append)
    assert second.names == ["c", "d"]
    assert [point.name for point in points] == ["a", "c", "d"]
    assert failed == (Failure(name="b", why="no such plan."),)
    assert lines[-1] == "4 of 4: d"
    assert set(Cache.open(folder, "same").done) == set("abcd")  # also the line after the one that was cut off
    shutil.rmtree(folder)
    assert not folder.exists()


def test_points_of_another_run_are_refused_or_replaced_and_never_mixed(tmp_path):
    folder = tmp_path / "f.partial"
    first = Cache.open(folder, "one")
    first.keep(_point("a", 0, 0))
    with pytest.raises(OutputError, match="another run"):
        Cache.open(folder, "two")
    second = Cache.open(folder, "two", force=True)
    assert not second.done
    with pytest.raises(OutputError, match="replaced by another run"):
        first.keep(_point("b", 0, 0))
    second.keep(_point("c", 0, 0))
    assert set(Cache.open(folder, "two").done) == {"c"}
    (folder / "mine.txt").write_text("keep me")
    with pytest.raises(OutputError, match="no folder of points"):
        Cache.open(folder, "third", force=True)
    assert (folder / "mine.txt").exists()
    shutil.rmtree(folder)
    with pytest.raises(OutputError, match="removed"):
        second.keep(_point("d", 0, 0))
    assert not folder.exists()


def test_sweep_in_processes_gives_points_in_the_order_of_tasks(place):
    asked = _asked(place)
    case = DISTORTION.open(asked)
    tasks = [task for task in DISTORTION.candidates(case)[0] if task.mechanism == "full-domain"][:2]
    points, failed = sweep.sweep(tasks, partial(sweep.measure_point, DISTORTION, case), jobs=2)
    assert [point.name for point in points] == [task.name for task in tasks]
    assert not failed


def _constant(measure: Callable[[Subject, Candidate], Draw], **more: Any) -> Goal[Subject]:
    """A goal whose draws are given."""
    return Goal(
        cost_name="cost",
        cost_unit="more",
        risk_name="risk",
        open=lambda request: Subject(request=request, digest=""),
        candidates=lambda case: (_tasks("a"), []),
        measure=measure,
        reference=lambda case: Reference(risk_without_privacy=1, risk_of_chance=0, cost_baseline="nothing"),
        **more,
    )


def test_every_draw_counts(place):
    draws = [Draw(cost=0.0, risk=0.5, figures={"x": 1.0}), Draw(cost=0.2, risk=0.5, figures={"x": 2.0, "y": 4.0})]
    goal = _constant(lambda case, task: draws.pop(0))
    point = sweep.measure_point(goal, goal.open(_asked(place)), _tasks("a")[0])
    assert point.draws == 2
    assert not draws
    assert point.cost.value == pytest.approx(0.1)
    assert point.figures == {"x": 1.5, "y": 4.0}


# --- Rows to measure on --------------------------------------------------------------------------------------------


def test_generated_rows_rest_on_public_facts_alone(place):
    policy = BasePolicy.read(place / "base.toml").policy({"name": "noisy-values", "epsilon": 1})
    data = load(place / "parcels.csv", policy)
    seen: list[str] = []

    class Watched(Dataset):
        def column(self, name: str) -> Any:
            seen.append(name)
            return super().column(name)

    watched = Watched(table=data._table, policy=policy, period=None, source="x", parts=data.parts, num_left_out=0)
    made = like(policy, 40, data=watched, largest={"weight": 62.5})
    assert set(seen) == {"port"}
    weights = made.numbers("weight")
    assert ((weights >= 0) & (weights <= 62)).all()
    assert (weights == np.round(weights)).all()
    assert Counter(made.column("port").to_pylist()) == Counter(data.column("port").to_pylist())
    assert len(like(policy, 7, data=data)) == 7
    # Values are spread evenly over the whole domain, wherever the true ones are.
    many = like(policy, 4000, data=data).numbers("weight")
    assert stats.chisquare(np.histogram(many, bins=np.arange(102) - 0.5)[0]).pvalue > 1e-9


def test_size_of_generated_data_is_public_or_rounded(place):
    (place / "parcels.csv").write_text(_rows(44))
    case = TRUCKS.open(_asked(place, on="generated", quick=False))
    named = {candidate.mechanism: candidate for candidate in TRUCKS.candidates(case)[0]}
    sizes = {name: len(case.rows(candidate, Noise())) for name, candidate in named.items()}
    assert sizes == {name: 40 if name == "sampled-lattice" else 44 for name in sizes}
    fewer = TRUCKS.open(_asked(place, on="generated", size=12))
    assert len(fewer.rows(named["sampled-lattice"], Noise())) == 12
    assert [rows.round_to_one_digit(number) for number in (1, 9, 14, 15, 94, 95, 4321)] == [1, 9, 10, 20, 90, 100, 4000]


def test_of_many_rows_whole_strata_are_taken(place):
    case = DISTORTION.open(_asked(place))
    some = case.some_rows(case.policy, Noise(), 30)
    assert len(some) == 20
    assert len(set(some.column("port").to_pylist())) == 1
    assert [len(case.some_rows(case.policy, Noise(), limit)) for limit in (15, 40)] == [15, 40]
    release, _ = publish(some, ledger=":memory:")
    assert len(release) == 20


def test_rows_of_a_group_that_is_too_large_are_added_where_whole_ones_are_few():
    group = np.repeat([0, 1], [2, 38])  # either comes first: 2 whole and 8 more, or 10 of the large one
    inner = np.concatenate([[0, 0], np.repeat(np.arange(1, 20), 2)])
    for _ in range(10):
        taken = rows._some(np.arange(40), [group, inner], 10, Noise())
        assert len(set(taken.tolist())) == 10
        assert all(size == 2 for size in Counter(inner[taken].tolist()).values())  # whole inner groups


def test_optimum_that_was_not_proven_is_said(place):
    points = [_point("a", 0, 0.1, figures={"optimum proven": 0.5}), _point("b", 0, 0.1), _point("c", 0, 0.1)]
    case = TRUCKS.open(_asked(place))
    assert any("1 point was compared" in line for line in advice._measured_says(case, points))
    assert not any("were compared with the best" in line for line in advice._measured_says(case, points[1:]))
    drawn = TRUCKS.measure(case, TRUCKS.candidates(case)[0][0])
    assert drawn.figures["optimum proven"] == 1


def test_of_many_packages_some_are_measured_and_that_is_said(place, monkeypatch):
    monkeypatch.setattr("dunnage.advising.rows.MAX_RECORDS", 20)
    monkeypatch.setattr("dunnage.advising.rows.MAX_SIMPLE", 30)
    case = TRUCKS.open(_asked(place, by="port"))
    task = TRUCKS.candidates(case)[0][0]
    drawn = TRUCKS.measure(case, task)
    assert drawn.figures["packages"] == 20  # one port of two
    told = TRUCKS.reference(case)
    assert "20 packages" in told.cost_baseline
    assert "all of some public values" in " ".join(told.says)  # of partition
    assert "full-domain for sealed plans takes at most 20 of the true ones, random rows" in " ".join(told.says)
    more = TRUCKS.open(_asked(place, by="port", size=40))
    assert TRUCKS.measure(more, task).figures["packages"] == 40
    assert "at most" not in " ".join(TRUCKS.reference(more).says)


def test_fewer_records_are_measured_for_distortion_and_error(place):
    for goal in (DISTORTION, NUMBER_ERROR):
        case = goal.open(_asked(place, size=10))
        task = next(task for task in goal.candidates(case)[0] if task.mechanism == "partition")
        assert len(case.rows(task, Noise())) == 10
        assert task.on == "sample"
        assert "at most 10 of the true ones, random rows" in " ".join(goal.reference(case).says)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(2, 20), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_whole_groups_are_promised_only_where_they_are_taken(sizes, most, inside):
    outer = np.repeat(np.arange(len(sizes)), sizes)
    inner = np.unique(outer * 100 + np.concatenate([np.arange(size) // inside for size in sizes]), return_inverse=True)[
        1
    ]
    for groups in ([outer], [outer, inner]):
        if len(outer) <= most or not rows.takes_whole_groups(groups, most):
            continue
        for _ in range(4):
            taken = rows._some(np.arange(len(outer)), groups, most, Noise())
            assert 0 < len(taken) <= most
            rest = np.setdiff1d(np.arange(len(outer)), taken)
            assert not set(groups[-1][taken].tolist()) & set(groups[-1][rest].tolist())


def test_figures_of_many_rows_are_those_of_publishing_all_of_them(tmp_path):
    """With more rows than are planned on, k-anonymous points are still measured on all of them."""
    weights = np.random.default_rng(3).integers(0, 4000, 6000) / 100
    (tmp_path / "parcels.csv").write_text("parcel,port,weight\n" + "".join(f"{w},A,{w}\n" for w in weights.tolist()))
    (tmp_path / "base.toml").write_text(
        POLICY.replace("resolution = 1\ndoubling = 5", "resolution = 0.01\ndoubling = 2")
    )
    for goal in (DISTORTION, NUMBER_ERROR):
        case = goal.open(_asked(tmp_path))
        task = next(task for task in goal.candidates(case)[0] if task.name == "partition k=20")
        assert task.on == "data"
        drawn = goal.measure(case, task)
        policy = case.request.base.policy({"name": "partition", **task.parameters})
        data = load(tmp_path / "parcels.csv", policy)
        again = rows.row_errors(publish(data, ledger=":memory:"), data)
        assert drawn.risk == pytest.approx(again.risk, abs=1e-3)
        assert goal is DISTORTION or drawn.cost == pytest.approx(again.cost, abs=1e-3)
    assert "of the true ones" not in " ".join(goal.reference(case).says)


def test_points_that_are_not_recommended_are_marked():
    points = (_point("weak", 0.0, 0.95), _point("fine", 0.1, 0.1), _point("m", 0.05, 0.0, figures={OVERLOADED: 0.5}))
    lines = _frontier(*points, recommended="fine").summary().splitlines()
    assert [line[:3] for line in lines[1:5]] == ["! w", "! m", "* f", "! i"]
    assert "90 % of the time" in lines[4]
    assert "95 %" in lines[1]


def test_plans_that_take_minutes_with_several_quantities_are_left_out(place):
    text = (place / "base.toml").read_text()
    more = text[text.index("[attributes.weight]") : text.index("[mechanism]")].replace("weight", "volume")
    (place / "base.toml").write_text(text.replace("[mechanism]", more.replace('"kg"', '"l"') + "[mechanism]"))
    rows = _rows().splitlines()
    (place / "parcels.csv").write_text("\n".join([f"{rows[0]},volume", *(f"{row},7" for row in rows[1:])]) + "\n")
    for capacity, left_out in (("100kg", False), ("1000kg", True)):
        case = TRUCKS.open(_asked(place, capacity=(capacity, "volume=400"), quick=False))
        tasks, failed = TRUCKS.candidates(case)
        plans = {task.plan["name"] for task in tasks}
        assert ("sealed" in plans) is not left_out
        assert [item.name for item in failed if "minutes" in item.why] == (
            ["certified 95 % plans", "sealed plans"] if left_out else []
        )


def test_measurement_that_takes_too_long_is_given_up(place):
    def endless(case: Subject, task: Candidate) -> Draw:
        """Take for ever, whatever else is caught on the way."""
        while True:
            with contextlib.suppress(Exception):
                sum(range(1000))

    goal = _constant(endless, draw_seconds=0.05)
    found = sweep.attempt(partial(sweep.measure_point, goal, goal.open(_asked(place))), _tasks("a")[0])
    assert isinstance(found, Failure)
    assert "more than 0.05 seconds" in found.why
    assert not signal.getitimer(signal.ITIMER_PROF)[0]  # no alarm is left behind


# --- The goals -----------------------------------------------------------------------------------------------------


def test_points_of_trucks_agree_with_a_plan_made_by_hand(place):
    case = TRUCKS.open(_asked(place, by="port"))
    tasks = {task.name: task for task in TRUCKS.candidates(case)[0]}
    for plan, model in (("upper bounds", Standard()), ("sealed", Sealed())):
        task = tasks[f"partition k=5, {plan} plan"]
        assert (task.on, task.guarantee, task.basis) == ("data", "k-anonymity, k 5", "proved")
        point = sweep.measure_point(TRUCKS, case, task)
        policy = case.request.base.policy({"name": task.mechanism, **task.parameters})
        data = load(place / "parcels.csv", policy)
        release, key = publish(data, ledger=":memory:")
        made = pack(release, capacity="100kg", by="port", model=model, seconds=2)
        done = apply(made, data, release, key, repair=True)
        ratio = plan_utility(done, data, seconds=2).ratio
        assert point.cost.lower - 1e-9 <= ratio - 1 <= point.cost.upper + 1e-9
        assert point.risk.lower - 0.03 <= done.truck_linkage.mean <= point.risk.upper + 0.03
        assert plan != "sealed" or point.cost.value == 0


def test_next_step_is_read_by_a_shell_as_it_was_meant(place):
    text = (place / "base.toml").read_text()
    text = text.replace("attributes.weight", 'attributes."Gross weight"').replace(
        "attributes.port", 'attributes."the port"'
    )
    (place / "base.toml").write_text(text)
    rows = (place / "parcels.csv").read_text().replace("port,weight", "the port,Gross weight", 1)
    (place / "parcels.csv").write_text(rows)
    case = TRUCKS.open(_asked(place, capacity=("Gross weight=100",), by="the port"))
    point = _point("a", 0, 0, plan={"name": "certified 95 %", "model": "stochastic", "risk": 0.05})
    assert shlex.split(TRUCKS.next_step(case, point)) == [
        *("dunnage", "pack", "RELEASE", "--capacity", "Gross weight=100", "--by", "the port"),
        *("--model", "stochastic", "--risk", "0.05", "-o", "PLAN"),
    ]


def test_packages_outside_the_plan_need_trucks_too(place):
    case = TRUCKS.open(_asked(place))
    task = next(task for task in TRUCKS.candidates(case)[0] if task.mechanism == "sampled-lattice")
    assert task.on == "generated"
    assert task.guarantee.startswith("sampled-dp, epsilon 1, delta 0.0007")
    task = replace(task, parameters={"k": 2, "beta": 0.5, "epsilon_choice": 1})
    drawn = TRUCKS.measure(case, task)
    outside = drawn.figures["packages outside the plan"]
    assert outside > 0
    assert drawn.figures["trucks"] > drawn.figures["planned trucks"]
    assert drawn.cost == pytest.approx(drawn.figures["trucks"] / drawn.figures["optimum"] - 1)


def test_candidates_that_do_not_fit_are_told_once(place):
    text = (place / "base.toml").read_text().replace("doubling = 5\n", "").replace("resolution = 1\n", "")
    (place / "base.toml").write_text(text)
    tasks, failed = TRUCKS.candidates(TRUCKS.open(_asked(place, quick=False)))
    assert {task.mechanism for task in tasks} == {"partition"}
    assert len({task.name for task in tasks}) == len(tasks)
    assert {int(task.parameters["k"]) for task in tasks} == {2, 3, 5, 10, 20}
    assert Counter(item.name for item in failed) == Counter(
        ["full-domain", "noisy-values", "noisy-clusters", "sampled-lattice"]
    )


def test_what_is_measured_on_what(place):
    for on, kinds in (("auto", {"data", "generated"}), ("data", {"data"}), ("generated", {"generated"})):
        tasks, _ = TRUCKS.candidates(TRUCKS.open(_asked(place, on=on)))
        assert {task.on for task in tasks} == kinds
        assert on != "auto" or all((task.on == "data") == task.guarantee.startswith("k-anonymity") for task in tasks)


def test_goals_say_what_is_missing_and_which_other_goal_a_policy_is_for(place):
    for change, word in (
        ({"capacity": ()}, "--capacity"),
        ({"capacity": ("20kg",)}, "too large for the truck"),
        ({"capacity": ("20t",)}, "20t"),
        ({"by": "parcel"}, "Public are: port"),
    ):
        with pytest.raises(ParameterError, match=word):
            TRUCKS.open(_asked(place, **change))
    others = {'[mechanisms.places]\nname = "local-location"\n': "--goal error"}
    others[POLICY.replace('"quasi-identifier"', '"sensitive"')] = "quasi-identifier"
    for text, word in others.items():
        (place / "base.toml").write_text(text)
        for goal in (TRUCKS, DISTORTION):
            with pytest.raises(ParameterError, match=word):
                goal.open(_asked(place))


def test_ranges_cut_a_domain_on_its_grid():
    borders = rows.ranges_of(Numeric(lower=0, upper=1, resolution="0.1"), 4)
    assert [Fraction(str(border)) for border in borders] == [Fraction(1, 5), Fraction(1, 2), Fraction(7, 10)]
    assert rows.ranges_of(Numeric(lower=0, upper=2, resolution=1), 4) == [1]


# --- Advice --------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_candidate(monkeypatch):
    """Let the goal distortion try one partition only."""

    def only(k: int) -> None:
        found = [Candidate(name="p", mechanism="partition", parameters={"k": k})]
        monkeypatch.setattr(rows, "_table_candidates", lambda case: found)

    return only


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_advice_ends_with_a_policy_that_publishes(place):
    before, lines = _files(place), []
    out = place / "frontier"
    found = advice.advise(
        place / "parcels.csv",
        policy=place / "base.toml",
        goal="distortion",
        out=out,
        max_risk="1/5",
        draws=2,
        quick=True,
        progress=lines.append,
    )
    assert _files(place) - before == {"frontier.partial", "frontier.partial/points.jsonl"}
    found.write(out)
    advice.finish(out)
    assert not (place / "frontier.partial").exists()
    assert found.meets_limit
    assert found.point(found.recommended).risk.upper <= 0.2
    assert {point.mechanism for point in found.points} >= {"partition", "full-domain", "utility-clusters"}
    assert any("not private" in line for line in found.says)
    assert any(line.startswith(f"{len(found.points)} of ") for line in lines)
    # Whoever follows the policy publishes what was measured, and nothing was spent on the way.
    policy = Policy.read(out / "policy.toml")
    assert policy.mechanism["name"] == found.point(found.recommended).mechanism
    data = load(place / "parcels.csv", policy)
    with Ledger(place / "ledger.sqlite") as ledger:
        release, _ = publish(data, ledger=ledger)
        assert len(ledger.statement("parcels").spends) == 1
    assert len(release) == 40
    drawn = DISTORTION.measure(
        DISTORTION.open(_asked(place)),
        Candidate(
            name="again",
            mechanism=str(policy.mechanism["name"]),
            parameters={key: value for key, value in policy.mechanism.items() if key != "name"},
            guarantee="",
            basis="proved",
        ),
    )
    point = found.point(found.recommended)
    assert point.cost.lower <= drawn.cost <= point.cost.upper
    assert point.risk.lower <= drawn.risk <= point.risk.upper


def test_second_run_of_the_same_command_measures_nothing_again(place, monkeypatch, one_candidate):
    asked: dict[str, Any] = {
        "policy": place / "base.toml",
        "goal": "distortion",
        "out": place / "frontier",
        "draws": 2,
        "quick": True,
    }
    one_candidate(4)
    first = advice.advise(place / "parcels.csv", **asked)
    monkeypatch.setattr(advice, "measure_point", lambda *given: pytest.fail("measured anew"))
    again = advice.advise(place / "parcels.csv", max_cost="1%", **asked)  # another wish, the same points
    assert again.points == first.points
    assert not again.meets_limit
    assert any("NOT keep" in line for line in again.says)
    assert "NOT keep" in again.policy
    with pytest.raises(OutputError, match="another run"):
        advice.advise(place / "parcels.csv", **{**asked, "draws": 3})


def test_choosing_dp_by_the_data_is_said_loudly(place, monkeypatch):
    def only(case: RowSubject) -> list[Candidate]:
        plan = {"name": "upper bounds", "model": "standard", "statistic": "upper"}
        return [
            Candidate(name="k", mechanism="partition", parameters={"k": 2}, plan=plan),
            Candidate(name="dp", mechanism="noisy-values", parameters={"epsilon": 8}, plan=plan),
        ]

    monkeypatch.setattr("dunnage.advising.rows._truck_candidates", only)
    told = {}
    for on in ("auto", "data", "generated"):
        found = advice.advise(
            place / "parcels.csv", policy=place / "base.toml", goal="trucks", capacity="100kg", on=on, draws=2
        )
        told[on] = " ".join(found.says)
        assert found.risk_of_chance < found.risk_without_privacy <= 1
        assert "dunnage pack RELEASE --capacity 100kg" in found.policy
    assert "different data" in told["auto"]
    assert "WARNING" not in told["auto"]
    assert "WARNING" in told["data"]
    assert "NOT covered by epsilon" in told["data"]
    assert "WARNING" not in told["generated"]
    assert "not private: that a policy was chosen tells a little about the data: so these were" in told["generated"]
    assert "rounded number of records" in told["generated"]


def test_options_are_checked_before_anything_is_read(tmp_path):
    (tmp_path / "base.toml").write_text(POLICY)
    wrong = {"goal": "truks", "on": "moon", "draws": 1, "size": 0, "max_cost": "x", "jobs": 0}
    for name, value in wrong.items():
        given = {"goal": "distortion", "policy": tmp_path / "base.toml", name: value}
        with pytest.raises(ParameterError, match=name):
            advice.advise(tmp_path / "nothing.csv", **given)


def test_frontier_folder_that_holds_a_ledger_is_never_replaced(place):
    out = place / "frontier"
    _frontier(_point("a", 0, 0)).write(out)
    (out / "dunnage-ledger.sqlite").write_text("spent")
    given: dict[str, Any] = {"policy": place / "base.toml", "goal": "distortion", "out": out}
    with pytest.raises(OutputError, match="exists already"):
        advice.advise(place / "parcels.csv", **given)
    with pytest.raises(OutputError, match="also holds dunnage-ledger"):
        advice.advise(place / "parcels.csv", force=True, **given)


def test_nothing_measured_is_an_error_with_all_reasons(place, one_candidate):
    one_candidate(39)
    with pytest.raises(NoPlanError, match="no policy could be measured") as error:
        advice.advise(place / "parcels.csv", policy=place / "base.toml", goal="distortion", draws=2)
    assert "- p: " in str(error.value)


def _commanded(*given: Any) -> Any:
    """Run the command in this process."""
    import typer
    from typer.testing import CliRunner

    from dunnage.cli.auditing import advise

    app = typer.Typer()
    app.command()(advise)
    return CliRunner().invoke(app, [str(item) for item in (*given, "--jobs", 1, "--draws", 2, "--quick")])


@pytest.mark.parametrize("goal", ["trucks", "distortion", "error"])
def test_command_says_how_to_publish(place, monkeypatch, goal):
    monkeypatch.setattr("dunnage.advising.rows.QUICK_KS", (3,))
    monkeypatch.setattr("dunnage.advising.rows.QUICK_EPSILONS", (4,))
    (place / "parcels.csv").write_text(_rows(12))
    text = (place / "base.toml").read_text().replace("doubling = 5\n", "")
    (place / "base.toml").write_text(text)
    out = place / "a frontier"
    options = ["--capacity", "100kg"] if goal == "trucks" else []
    result = _commanded(place / "parcels.csv", "--policy", place / "base.toml", "--goal", goal, "-o", out, *options)
    assert result.exit_code == 0, result.output
    assert (
        f"dunnage publish {place}/parcels.csv --policy '{out}/policy.toml' --ledger {place}/dunnage-ledger.sqlite "
        "-o RELEASE" in result.stdout
    )
    assert f"* {Frontier.read(out).recommended}" in result.stdout
    assert "(-" not in result.stdout  # no cost here can be below 0
    assert "Not tried for want of something in the policy: full-domain" in result.stdout
    assert mechanism_of(Policy.read(out / "policy.toml"))


def test_command_writes_a_frontier_folder(place, one_candidate):
    one_candidate(4)
    given = [place / "parcels.csv", "--policy", place / "base.toml", "--goal", "distortion"]
    result = _commanded(*given, "-o", place / "f", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["recommended"] == "p"
    assert sorted(os.listdir(place / "f")) == ["frontier.csv", "frontier.html", "frontier.json", "policy.toml"]
    assert Frontier.read(place / "f").recommended == "p"
