# SPDX-License-Identifier: Apache-2.0
"""Audits of counts: every error against dense tables, what one trip tells against all outcomes, and the page."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError
from tests.builders import WEIGHT, a_policy
from tests.counts_help import answers, asked, discrete_laplace, law_of, outcomes, universe

import dunnage as dn
from dunnage.auditing import counts as auditing_counts
from dunnage.auditing import findings
from dunnage.auditing.counts import (
    Answer,
    CountsView,
    Errors,
    Membership,
    WholeLaw,
    noisy_answer,
    trips_apart,
    trips_together,
    weighed_by_counts,
)
from dunnage.errors import ReleaseError
from dunnage.kernels.counts.laplace import DiscreteLaplace, FlooredLaplace, RoundedLaplace
from dunnage.mechanisms.counts import ConstrainedCounts, true_counts
from dunnage.model.documents import canonical
from dunnage.model.domains import Numeric, Stops, Windows
from dunnage.model.schema import Attribute, Contribution, Role, Schema
from dunnage.model.trips import Trip
from dunnage.showing.audit import audit_page, count_pictures, write_audit
from dunnage.text import unbroken

STOPS = ("B", "A", "C", "<D>")
ZONES = np.array([0, 1, 0, 1], dtype=np.int32)
MODES = (np.add.outer(np.arange(4), 2 * np.arange(4)) % 3).astype(np.int16)
CITY = dn.City(stops=STOPS, zone_names=("in", "out"), zones=ZONES, mode_names=("x", "y", "z"), modes=MODES)
WINDOWS = 3
NOISY = {"name": "noisy-counts", "epsilon": 1, "rounding": "round"}
CONSTRAINED = {"name": "constrained-counts", "epsilon": 1}
FLAT = [("window",), ("origin_zone", "destination_zone", "window"), ("mode", "window")]
TOTAL_VARIATION = "total variation distance"


def policy(mechanism: dict[str, Any], *, bound: int | None = None, per: str = "period", **more: Any) -> dn.Policy:
    city, tallied = more.pop("city", CITY), more.pop("tallied", False)
    quasi: dict[str, Any] = {"role": Role.QUASI_IDENTIFIER}
    windows = Windows(**{"lower": "08:00", "upper": "09:30", "window_minutes": 30, **more})
    attributes = [
        Attribute(name="card", role=Role.IDENTIFIER),
        Attribute(name="board", domain=Stops(stops=city.stops), **quasi),
        Attribute(name="alight", domain=Stops(stops=city.stops), **quasi),
        Attribute(name="tap", domain=windows, **quasi),
    ]
    attributes += [Attribute(name="trips", domain=Numeric(lower=0, upper=9), **quasi)] if tallied else []
    schema = Schema(
        attributes=tuple(attributes),
        protects="rider" if bound else "trip",
        trip=Trip(origin="board", destination="alight", time="tap", count="trips" if tallied else None),
        city=city,
        contribution=Contribution(person="card", max=bound, per=per) if bound else None,
    )
    return dn.Policy(dataset="trips", schema=schema, mechanism=mechanism)


def rows(num: int, seed: int = 1, stops: tuple[str, ...] = STOPS) -> pa.Table:
    """Trips of which many are of one type."""
    draw = random.Random(seed)
    weights = [1 / (place + 1) ** 2 for place in range(len(stops))]
    return pa.table(
        {
            "card": [f"PRIVATE-{draw.randrange(7)}" for _ in range(num)],
            "board": draw.choices(stops, weights, k=num),
            "alight": draw.choices(stops, weights, k=num),
            "tap": [f"2026-11-1{draw.randrange(4, 6)}T08:{draw.randrange(60):02d}" for _ in range(num)],
        }
    )


def published(mechanism: dict[str, Any], num: int = 120, **more: Any) -> tuple[Any, dn.Dataset, Any]:
    data = dn.Dataset.from_table(rows(num), policy(mechanism, **more))
    release, key = dn.publish(data, ledger=":memory:")
    return release, data, key


def nothing_travelled(mechanism: dict[str, Any], **more: Any) -> tuple[Any, dn.Dataset, Any]:
    table = rows(5)
    data = dn.Dataset.from_table(
        table.append_column("trips", pa.array([0] * 5)), policy(mechanism, tallied=True, **more)
    )
    return *dn.publish(data, ledger=":memory:"), data


def dense(release: dn.Release, data: dn.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """True and released counts. Shape of each: windows, origins, destinations."""
    true, seen = (np.zeros((WINDOWS, len(STOPS), len(STOPS)), dtype=np.int64) for _ in range(2))
    starts = ("08:00", "08:30", "09:00")
    table = {name: data.column(name).to_pylist() for name in ("board", "alight", "tap")}
    for origin, destination, stamp in zip(*table.values(), strict=True):
        window = (stamp % 200_000 - 8 * 3600) // 1800
        true[window, STOPS.index(origin), STOPS.index(destination)] += 1
    for line in release.data.to_pylist():
        place = starts.index(line["window"]), STOPS.index(line["origin"]), STOPS.index(line["destination"])
        seen[place] += line["count"]
    return true, seen


def group_sums(table: np.ndarray, columns: tuple[str, ...]) -> list[int]:
    """Sums of a feature, empty groups with cells included, by going through all cells."""
    sums: dict[tuple[Any, ...], int] = {}
    for (window, origin, destination), number in np.ndenumerate(table):
        facts = {"window": window, "origin": origin, "destination": destination, "mode": MODES[origin, destination]}
        facts |= {"origin_zone": ZONES[origin], "destination_zone": ZONES[destination]}
        group = tuple(int(facts[name]) for name in columns)
        sums[group] = sums.get(group, 0) + int(number)
    return [sums[group] for group in sorted(sums)]


def errors_of(differences: list[int]) -> tuple[float, float, float]:
    sizes = [abs(number) for number in differences]
    return math.sqrt(sum(size**2 for size in sizes) / len(sizes)), sum(sizes) / len(sizes), max(sizes)


@pytest.fixture(
    scope="module",
    params=[
        NOISY,
        {**NOISY, "rounding": "floor", "threshold": 3},
        CONSTRAINED,
        {"name": "hierarchical-counts", "epsilon": 1},
        {**CONSTRAINED, "features": [[], ["origin"], ["destination", "mode"]]},
    ],
    ids=["noisy", "threshold", "constrained", "tree", "features"],
)
def case(request):
    release, data, key = published(request.param)
    return release, data, dn.audit(release, data, key=key)


def test_errors_of_cells_and_totals_by_hand(case):
    release, data, found = case
    true, seen = dense(release, data)
    parts = {"per cell": np.ones(true.shape, dtype=bool), "in cells with trips": true > 0, "in empty cells": true == 0}
    for words, part in parts.items():
        told, nothing = errors_of((seen - true)[part].tolist()), errors_of(true[part].tolist())
        for place, name in enumerate(("RMSE", "MAE")):
            item = found.finding(f"{name} {words}")
            assert (item.value, item.baseline) == pytest.approx((told[place], nothing[place]))
            assert (item.private, item.unit, item.details["cells"]) == (True, "trips", part.sum())
    total = found.finding("error of the total")
    assert total.value == abs(true.sum() - seen.sum())
    assert (total.baseline, total.details["true"], total.details["released"]) == (120, 120, seen.sum())
    apart = np.abs(true / true.sum() - seen / max(seen.sum(), 1)).sum() / 2
    assert found.finding(TOTAL_VARIATION).value == pytest.approx(apart)
    assert found.finding(TOTAL_VARIATION).baseline == 1
    created = found.finding("trips created in empty cells")
    assert created.value == seen[true == 0].sum()
    assert created.details == {
        "cells": (seen[true == 0] > 0).sum(),
        "kept": np.minimum(true, seen).sum(),
        "added": np.maximum(seen - true, 0)[true > 0].sum(),
        "lost": np.maximum(true - seen, 0).sum(),
    }


def test_errors_of_every_feature_flows_and_noise_by_hand(case):
    release, data, found = case
    true, seen = dense(release, data)
    names = [row.feature for row in release.certificate.counts.features or []]
    wanted = {tuple(name.split(" x ")) for name in names if name not in ("cells", "total")} | set(FLAT)
    wanted.add(("origin_zone", "destination_zone", "mode", "window"))
    for columns in wanted:
        item = found.finding(f"RMSE of sums ({' x '.join(columns)})")
        sums = [np.array(group_sums(table, columns)) for table in (true, seen)]
        rmse, mae, largest = errors_of((sums[1] - sums[0]).tolist())
        assert (item.value, item.details["mae"]) == pytest.approx((rmse, mae))
        assert (item.details["largest"], item.details["groups"]) == (largest, len(sums[0]))
        assert item.baseline == pytest.approx(errors_of(sums[0].tolist())[0])
    assert sum(item.name.startswith("RMSE of sums") for item in found.findings) == len(wanted)
    flows = found.finding(TOTAL_VARIATION).details["flows"]
    for name, table in (("true", true), ("released", seen)):
        assert flows["stops"]["names"] == list(STOPS)
        assert flows["stops"][name] == table.sum(axis=0).tolist()
        zones = np.zeros((2, 2), dtype=int)
        for (_, origin, destination), number in np.ndenumerate(table):
            zones[ZONES[origin], ZONES[destination]] += number
        assert flows["zones"][name] == zones.tolist()
    assert not flows["stops"]["with_rest"]
    for row in release.certificate.counts.features or []:
        item = found.finding(f"noise ({row.feature})")
        scale = float(Fraction(str(row.scale)))
        ratio = math.exp(-1 / scale)
        assert item.value == pytest.approx(math.sqrt(2 * ratio) / (1 - ratio))
        assert not item.private


def test_the_busiest_stops_of_many(monkeypatch):
    monkeypatch.setattr(auditing_counts, "MAX_STOPS", 3)
    release, data, key = published(NOISY)
    true, seen = dense(release, data)
    table = dn.audit(release, data, key=key).finding(TOTAL_VARIATION).details["flows"]["stops"]
    busy = true.sum(axis=(0, 1)) + true.sum(axis=(0, 2))
    top = sorted(np.argsort(-busy, kind="stable")[:2].tolist())
    assert table["names"] == [*(STOPS[stop] for stop in top), "rest"]
    assert table["with_rest"]
    flat = seen.sum(axis=0)
    assert table["released"][0][1] == flat[top[0], top[1]]
    assert np.sum(table["released"]) == seen.sum()
    assert table["released"][0][2] == flat[top[0]].sum() - flat[top[0], top].sum()


def test_days_are_told_apart():
    dates = {"day": "date", "dates": ["2026-11-14", "2026-11-16"]}
    release, data, key = published(CONSTRAINED, **dates)
    found = dn.audit(release, data, key=key)
    truth = true_counts(data)
    assert truth.universe.num_cells == 3 * 3 * 16
    seen = np.zeros(truth.universe.num_cells, dtype=np.int64)
    sight = CountsView.of(release)
    seen[sight.cells] = sight.counts
    assert (np.diff(sight.cells) > 0).all()
    seen[truth.cells] -= truth.counts
    assert found.finding("RMSE per cell").value == pytest.approx(errors_of(seen.tolist())[0])
    by_slot = np.abs(seen.reshape(9, 16).sum(axis=1))
    item = found.finding("RMSE of sums (day x window)")
    assert item.details["largest"] == by_slot.max()
    assert item.details["groups"] == 9


def test_nothing_travelled_and_nothing_released():
    release, key, data = nothing_travelled({**NOISY, "threshold": 1000})
    found = dn.audit(release, data, key=key)
    assert found.finding("RMSE per cell").value == found.finding(TOTAL_VARIATION).value == 0
    assert not any("with trips" in item.name for item in found.findings)
    audit_page(found)
    release, data, key = published({**NOISY, "threshold": 1000}, num=20)
    assert dn.audit(release, data, key=key).finding(TOTAL_VARIATION).value == 1
    assert Errors.of(np.zeros(0), 5) == Errors(rmse=0.0, mae=0.0, largest=0.0)


def test_a_universe_of_more_than_a_billion_cells(within):
    stops = tuple(f"S{number:04d}" for number in range(850))
    time_of = {"lower": "00:00", "upper": "24:00", "day": "date", "dates": ["2026-11-01", "2026-11-30"]}
    made = policy({**NOISY, "threshold": 20}, city=dn.City(stops=stops), **time_of)
    data = dn.Dataset.from_table(rows(5000, stops=stops), made)
    release, key = dn.publish(data, ledger=":memory:")
    with within(5):
        found = dn.audit(release, data, key=key)
    assert found.finding("RMSE per cell").details["cells"] == 850 * 850 * 48 * 30 > 1e9
    truth, sight = true_counts(data), CountsView.of(release)
    table = dict(zip(truth.cells.tolist(), truth.counts.tolist(), strict=True))
    both = {**dict.fromkeys(table, 0), **dict(zip(sight.cells.tolist(), sight.counts.tolist(), strict=True))}
    squares = sum((number - table.get(cell, 0)) ** 2 for cell, number in both.items())
    assert found.finding("RMSE per cell").value == pytest.approx(math.sqrt(squares / truth.universe.num_cells))


def test_the_whole_space_of_two_noisy_cells():
    """One stop, two windows: all pairs of released counts, with and without a trip, where there are others."""
    law, threshold, reach = WholeLaw("round", Fraction(1)), 2, 60
    values = np.arange(-reach, reach + 20)

    def released(count: int) -> np.ndarray:
        masses = np.exp(law.log_mass(values - count))
        return np.append(masses[values >= threshold], masses[values < threshold].sum())

    for count, name in ((3, "membership guess"), (0, "membership guess, empty cell")):
        worlds = [np.multiply.outer(released(count + more), released(5)) for more in (0, 1)]
        apart = float(np.maximum(worlds[1] - worlds[0], 0).sum())
        release, *_ = published({**NOISY, "threshold": threshold})
        item = dn.audit(release, external=True).finding(name)
        assert item.value == pytest.approx((1 + apart) / 2, abs=1e-9)
        assert item.baseline == 0.5
        assert item.details["advantage"] == pytest.approx(apart, abs=1e-9)


def test_the_release_tells_no_more_than_its_noisy_answers():
    """Every noisy answer of a tiny universe through the mechanism: what comes out, with a trip and without."""
    mechanism = ConstrainedCounts(epsilon=2, features=[[]])
    question = asked(mechanism, universe(), DiscreteLaplace)
    found = outcomes(mechanism, question, reach=4, most=2)
    chances = [
        discrete_laplace(law.scale)
        for law, size in zip(question.laws, question.sizes, strict=True)
        for _ in range(size)
    ]
    worlds = [law_of(found, answers(question, counts), chances) for counts in ((1, 0), (2, 0))]
    apart = sum(max(worlds[1].get(result, 0) - worlds[0].get(result, 0), 0) for result in {**worlds[0], **worlds[1]})
    whole = Membership.of(noisy_answer(WholeLaw("discrete", law.scale)) for law in question.laws)
    assert 0.1 < apart <= whole.advantage + 1e-9
    release, *_ = published({**CONSTRAINED, "epsilon": 2, "features": [[]]})
    item = dn.audit(release, external=True).finding("membership guess")
    assert item.value == pytest.approx(whole.success)
    assert item.interval == (0.5, item.value)


def test_every_guess_is_below_the_bound_of_the_certificate(case):
    release, _, found = case
    bound = found.finding("membership bound")
    printed = [row for row in release.certificate.meaning.odds if row.before == 0.5]
    assert bound.value == printed[0].at_most
    guess = found.finding("membership guess")
    assert 0.5 < guess.value <= bound.value
    assert guess.details["suspicion_at_most"] <= bound.value
    assert found.finding("membership advantage").value == pytest.approx(2 * guess.value - 1)
    assert 0 < found.finding("suspicion at its bound").value < 1
    for words in ("together", "apart"):  # a rider is not protected
        assert found.finding(f"membership guess, rider of 10, {words}").value > guess.value


def test_features_with_different_shares_and_riders_with_a_bound():
    release, *_ = published({**CONSTRAINED, "budget_shares": "cells"})
    epsilons = [Fraction(3, 5)] + [Fraction(1, 10)] * 4
    expected = Membership.of(noisy_answer(WholeLaw("discrete", 1 / epsilon)) for epsilon in epsilons)
    found = dn.audit(release, external=True).finding("membership guess")
    assert found.value == pytest.approx(expected.success)
    assert found.details["loss"] == pytest.approx(1)
    release, data, key = published(CONSTRAINED, bound=3)
    found = dn.audit(release, data, key=key)
    answers_ = [Answer(WholeLaw("discrete", Fraction(15)), groups) for groups in (48, 1, 3, 12, 9)]
    guess, apart = (found.finding(f"membership guess{more}") for more in ("", ", rider of 3, apart"))
    assert guess.value == pytest.approx(trips_together(answers_, 3).success)
    assert apart.value == pytest.approx(trips_apart(answers_, 3).success)
    one = found.finding("membership guess, rider of 3, all but one known")
    assert one.value < apart.value < guess.value <= found.finding("membership bound").value


def test_suspicions_on_this_release_by_hand():
    release, data, key = published({**NOISY, "threshold": 2})
    true, seen = dense(release, data)
    law = WholeLaw("round", Fraction(1))
    values = np.arange(-200, 400)
    suspicions, right = [], 0.0
    for number, shown in zip(true[true > 0].tolist(), seen[true > 0].tolist(), strict=True):
        chances = {}
        for count in (number - 1, number, number + 1):
            masses = np.exp(law.log_mass(values - count))
            chances[count] = float(masses[values == shown][0] if shown else masses[values < 2].sum())
        suspicions.append(chances[number] / (chances[number] + chances[number - 1]))
        right += (chances[number] > chances[number - 1]) / 2 + (chances[number] > chances[number + 1]) / 2
    found = dn.audit(release, data, key=key)
    item = found.finding("suspicion on this release")
    assert item.value == pytest.approx(np.mean(suspicions))
    assert item.details["largest"] == pytest.approx(max(suspicions))
    bound = math.e / (1 + math.e)
    assert item.details["at_bound"] == pytest.approx(np.mean([one > bound - 1e-6 for one in suspicions]))
    guess = found.finding("membership guess on this release")
    assert guess.value == pytest.approx(right / len(suspicions))
    assert guess.interval[0] < guess.value < guess.interval[1]
    assert item.private
    assert guess.private


@pytest.mark.parametrize("rounding", ["discrete", "round", "floor"])
def test_over_many_cells_guesses_are_right_as_often_as_computed(rounding):
    release, *_ = published({**NOISY, "rounding": rounding})
    sight = CountsView.of(release)
    true = np.full(200_000, 40)
    law = {kind.name: kind for kind in (DiscreteLaplace, RoundedLaplace, FlooredLaplace)}[rounding](Fraction(1))
    noise = law.draw(dn.Noise(seed=2), len(true))
    found = weighed_by_counts(sight, true + noise, true)
    expected = dn.audit(release, external=True).finding("membership guess")
    assert found["right"] == pytest.approx(expected.value, abs=6.5 * 0.5 / math.sqrt(len(true)))
    share = dn.audit(release, external=True).finding("suspicion at its bound").value
    assert found["at_bound"] == pytest.approx(share, abs=6.5 * 0.5 / math.sqrt(len(true)))


def test_trips_that_were_dropped_leave_this_release_aside():
    release, data, key = published(NOISY, bound=2)
    assert key.facts["trips_dropped"] > 0
    for given in (key, None):
        found = dn.audit(release, data, key=given)
        assert not any("on this release" in item.name for item in found.findings)
        notes = [note for note in found.notes if "an empty table" not in note]  # these counts may be useless too
        assert len(notes) == (1 if given else 2)
    release, data, key = published(NOISY, bound=120)
    assert key.facts["trips_dropped"] == 0
    assert "suspicion on this release" in {item.name for item in dn.audit(release, data, key=key).findings}


def test_floating_noise_has_no_bound(monkeypatch):
    monkeypatch.setattr(auditing_counts, "FLOATING_DRAWS", 5000)
    for mechanism in (NOISY, CONSTRAINED):
        release, data, key = published({**mechanism, "as_published": True})
        for found in (dn.audit(release, data, key=key), dn.audit(release, external=True)):
            assert found.finding("membership bound").value == 1
            shown = found.finding("values of one world only")
            assert 0.5 < shown.interval[0] < shown.value < shown.interval[1]
            assert not any(item.name.startswith("membership guess") for item in found.findings)


def test_a_seed_and_too_many_outcomes_are_noted(monkeypatch):
    data = dn.Dataset.from_table(rows(50), policy(NOISY))
    release, key = dn.publish(data, ledger=":memory:", noise=dn.Noise(seed=3))
    found = dn.audit(release, data, key=key)
    assert any("seed" in note for note in found.notes)
    assert "membership bound" not in {item.name for item in found.findings}
    release, *_ = published(CONSTRAINED)
    whole = dn.audit(release, external=True)
    monkeypatch.setattr(auditing_counts, "MAX_OUTCOMES", 3)
    found = dn.audit(release, external=True)
    assert len(found.notes) == len(whole.notes) + 1
    assert found.finding("noise (cells)").value > 0


def test_an_external_audit_is_what_is_not_private(case, tmp_path):
    release, _, found = case
    outside = dn.audit(release, external=True)
    assert outside.external
    same = {item.name: item for item in found.findings if not item.private}
    assert same == {item.name: item for item in outside.findings}
    assert len(outside.notes) == 1
    assert count_pictures(outside) == []
    write_audit(found, tmp_path / "audit")
    again = dn.Audit.read(tmp_path / "audit")
    assert again.to_dict() == json.loads(json.dumps(found.to_dict()))
    assert count_pictures(again) == count_pictures(found)
    assert "RMSE per cell" in found.summary()
    assert "PRIVATE" not in (tmp_path / "audit" / "audit.json").read_text()


def test_expected_trips_created():
    release, *_ = published({**NOISY, "rounding": "floor", "threshold": 2})
    item = dn.audit(release, external=True).finding("trips created, expected")
    expected = sum(value * math.exp(-value) * (1 - math.exp(-1)) / 2 for value in range(2, 200)) * 48
    assert item.value == pytest.approx(expected)
    assert item.interval == (0, item.value)
    other = dn.audit(published(CONSTRAINED)[0], external=True)
    assert "trips created, expected" not in {item.name for item in other.findings}


def test_other_data_are_refused_and_what_cannot_be_asked_is_said(tmp_path):
    release, data, key = published(NOISY)
    found = dn.audit(release, data, key=key, population=data, also=[(release, data, key)], tolerance=0.1)
    assert len(found.notes) == 3
    no_key = findings.words("no key for counts")
    assert no_key in dn.audit(release, data).notes
    for found in (dn.audit(release, data, key=key), dn.audit(release, external=True)):
        assert no_key not in found.notes
    parcels = dn.load(pa.table({"weight": [1, 2]}), a_policy({"name": "partition", "k": 2}, {"weight": WEIGHT}))
    for other, more in ((dn.Dataset.from_table(rows(120, seed=2), data.policy), {"key": key}), (parcels, {})):
        with pytest.raises(ReleaseError):
            dn.audit(release, other, **more)
    ledger = tmp_path / "ledger.db"
    one, other = (dn.publish(data, ledger=ledger, again=True).write(tmp_path / name) for name in ("one", "other"))
    dn.audit(tmp_path / "one", data)
    with pytest.raises(ReleaseError, match="key"):
        dn.audit(tmp_path / "one", data, key=other.key)
    assert dn.audit(one.release, data, key=one.key).findings


def test_a_policy_of_other_trips_is_refused():
    release, *_ = published(CONSTRAINED)
    cases = [
        ({"upper": "10:00"}, "windows"),
        ({"window_minutes": 15}, "windows"),
        ({"zone": "Europe/Madrid"}, "zone"),
        ({"day": "weekday"}, "days"),
        ({"dates": ["2026-11-14", "2026-11-15"]}, "dates"),
        ({"city": dn.City(stops=(*STOPS[:3], "E"))}, "stops"),
        ({"city": dn.City(stops=STOPS)}, "zones, modes"),
        ({"city": replace(CITY, zones=np.arange(4, dtype=np.int32), zone_names=STOPS)}, "zones"),
        ({"city": replace(CITY, modes=MODES % 2)}, "modes"),
    ]
    for more, words in cases:
        stops = more.get("city", CITY).stops
        other = dn.Dataset.from_table(rows(120, stops=stops), policy(CONSTRAINED, **more))
        with pytest.raises(ReleaseError, match=f"{words}[^a-z]"):
            dn.audit(release, other)


def test_another_mechanism_is_noted():
    release, data, key = published(CONSTRAINED)
    plain = dn.audit(release, data, key=key).notes
    for words, mechanism, more in (
        (("epsilon", "features"), {**CONSTRAINED, "epsilon": 2, "features": [[]]}, {}),
        (("mechanism",), {"name": "hierarchical-counts", "epsilon": 1}, {}),
        (("contribution", "protects"), CONSTRAINED, {"bound": 2}),
    ):
        found = dn.audit(release, dn.Dataset.from_table(rows(120), policy(mechanism, **more)))
        (note,) = [note for note in found.notes if ", ".join(words) in note]
        assert note not in plain
        assert found.finding("noise (cells)").value == dn.audit(release, external=True).finding("noise (cells)").value


def test_a_rider_has_no_more_trips_of_one_type_than_a_day_allows():
    dates = {"day": "date", "dates": ["2026-11-14", "2026-11-16"]}
    law, by_window = WholeLaw("round", Fraction(6)), WholeLaw("discrete", Fraction(12))
    thrice, at_once = [noisy_answer(law, 2)] * 3, [noisy_answer(law, 6)]
    windows = [noisy_answer(by_window, 6), *[noisy_answer(by_window, 2)] * 3]
    for mechanism, time, expected in (
        (NOISY, dates, thrice),  # 6 trips, at most 2 of one type
        (NOISY, {**dates, "day": "day-type"}, None),
        (NOISY, {"dates": dates["dates"]}, at_once),  # 6 of one type
        ({**CONSTRAINED, "features": [["window"]]}, dates, windows),
    ):
        release, *_ = published(mechanism, bound=2, per="day", **time)
        guess = dn.audit(release, external=True).finding("membership guess")
        assert re.search(r"\b6\b", guess.sentence)
        assert expected is None or guess.value == pytest.approx(Membership.of(expected).success), time


STRANGE = [None, True, 0, -7, 2.5, 10**30, "x", "0", ["x"], {"x": 1}]


@pytest.mark.parametrize("mechanism", [NOISY, CONSTRAINED], ids=["noisy", "constrained"])
def test_no_figure_of_a_certificate_makes_an_audit_crash(mechanism):
    release, *_ = published(mechanism, bound=2)
    body = release.certificate.plain()

    def places(value, path=()):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            yield (*path, key)
            yield from places(item, (*path, key))

    read = ("measures", "mechanism", "guarantee", "meaning", "assumptions", "attributes", "period", "basis")
    for path, value in itertools.product((path for path in places(body) if path[0] in read), STRANGE):
        changed = json.loads(json.dumps(body))
        inner = changed
        for key in path[:-1]:
            inner = inner[key]
        if inner[path[-1]] == value:
            continue
        inner[path[-1]] = value
        try:
            certificate = dn.Certificate.model_validate(changed)
        except ValidationError:  # not even a certificate
            continue
        if canonical(certificate.plain()) != canonical(changed):  # a number in another form: reading refuses it
            continue
        try:
            dn.audit(dn.Release(certificate=certificate, data=release.data), external=True)
            refused = False
        except ReleaseError:
            refused = True
        assert refused or path[-1] in ("zone", "holidays"), (path, value)


def test_a_forged_or_strange_release_is_refused_as_verify_would():
    release, data, key = published(CONSTRAINED)
    body = release.certificate.plain()
    body["measures"]["features"][0]["scale"] = 0
    forged = dn.Release(certificate=dn.Certificate.model_validate(body), data=release.data)
    for more in ({"data": data, "key": key}, {"external": True}):
        with pytest.raises(ReleaseError, match="cells"):
            dn.audit(forged, **more)
    release, *_ = published(NOISY)
    body, table = release.certificate.plain(), release.data
    noise = [{**body["measures"], "noise": own} for own in ({"scale": 1, "law": "new"}, {"scale": "x", "law": "round"})]
    for changed, rows_ in (
        (body, table.set_column(0, "origin", pa.array(["nowhere"] * len(table)))),
        (body, table.drop_columns(["window"])),
        ({**body, "attributes": body["attributes"][:1]}, table),
        *(({**body, "measures": measures}, table) for measures in noise),
    ):
        with pytest.raises(ReleaseError):
            dn.audit(dn.Release(certificate=dn.Certificate.model_validate(changed), data=rows_), external=True)


def test_the_page_shows_flows_errors_and_created_trips(case):
    release, data, found = case
    true, seen = dense(release, data)
    pictures = count_pictures(found)
    assert len(pictures) == 6  # true and released trips by zone, then between stops; errors, and trips created
    text = audit_page(found)
    assert all(unbroken(picture.svg) in text for picture in pictures)
    assert "://" not in text
    assert 'style="' not in text  # the page's policy would not allow it
    assert "<D>" not in text
    assert "&lt;D&gt;" in text
    most = max(true.sum(axis=0).max(), seen.sum(axis=0).max())
    heat = r'class="heat" [^>]*fill-opacity="([\d.]+)"[^>]*><title>[^<]*: ([\d,]+) trips?<'
    for picture, table in zip(pictures[2:4], (true, seen), strict=True):
        depths = re.findall(heat, picture.svg)
        counts = [int(number.replace(",", "")) for _, number in depths]
        assert counts == [number for number in table.sum(axis=0).reshape(-1).tolist() if number]
        for depth, number in zip(depths, counts, strict=True):
            assert float(depth[0]) == pytest.approx(0.06 + 0.94 * number / most, abs=1e-3)
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)%"', pictures[-1].svg)]
    whole = 1.02 * max(true.sum(), seen.sum())
    assert sum(widths) == pytest.approx(100 * (true.sum() + seen.sum()) / whole, abs=0.05)
    assert f"{np.minimum(true, seen).sum():,} trips" in pictures[-1].caption


def test_a_page_without_zones_and_trips():
    release, key, data = nothing_travelled(NOISY, city=dn.City(stops=STOPS))
    found = dn.audit(release, data, key=key)
    assert len(count_pictures(found)) == 3
    audit_page(found)
    audit_page(dn.audit(release, external=True))
