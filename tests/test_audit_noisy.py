# SPDX-License-Identifier: Apache-2.0
"""audit of noisy and of sampled releases: figures counted by hand, belief against hits, what may be handed out."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from papers.li2022_beside import row_posterior
from tests.builders import WEIGHT, a_policy
from tests.plans_help import plan_of

import dunnage as dn
from dunnage.auditing import classes as sampled
from dunnage.auditing import noisy
from dunnage.auditing.classes import ClassesView
from dunnage.auditing.findings import words
from dunnage.auditing.noisy import NoisyTruth, NoisyView, attack_rows, max_likelihood, nearest_hits, simulate
from dunnage.errors import ParameterError, ReleaseError
from dunnage.model.laws import Cells
from dunnage.planning.linkage import NoisyRows, noisy_linkage
from dunnage.planning.problem import combinations
from dunnage.showing.audit import audit_page, write_audit
from dunnage.text import percent_at_most

FAR = 6.2
"""Standard errors that a mean is beyond with a probability below 1e-9."""


def load(
    num: int = 40, seed: int = 1, *, names: tuple[str, ...] = ("weight",), town: bool = False, unit: str = "kg"
) -> dn.Dataset:
    """Draw parcels whose numbers are spread evenly over the public domain."""
    draw = np.random.default_rng(seed)
    columns: dict[str, Any] = {"parcel": [f"PRIVATE-{i}" for i in range(num)]}
    number = {key: value for key, value in {**WEIGHT, "resolution": 1, "unit": unit}.items() if value}
    attributes: dict[str, Any] = {"parcel": {"role": "identifier"}, **dict.fromkeys(names, number)}
    columns |= {name: draw.integers(0, 101, num) for name in names}
    if town:
        columns["town"], attributes["town"] = draw.choice(["Ghent", "Delft"], num), {"role": "public"}
    return dn.load(pa.table(columns), a_policy({"name": "partition", "k": 2}, attributes))


def publish(mechanism: Any, data: dn.Dataset) -> Any:
    with dn.Ledger(":memory:") as ledger:
        return mechanism.release(data, ledger=ledger, noise=dn.Noise())


def row_of_record(data: dn.Dataset, key: Any) -> np.ndarray:
    found = np.full(len(data), -1)
    found[data.parts.records_of(key.table.column("source_row").to_numpy())] = key.table.column("row").to_numpy()
    return found


MECHANISMS = {
    "values": dn.NoisyValues(epsilon=3),
    "piecewise": dn.NoisyValues(epsilon=3, law="piecewise"),
    "clusters": dn.NoisyClusters(epsilon=1, borders=[20, 70]),
    "quantiles": dn.NoisyClusters(epsilon=4, quantiles=[0.3, 0.6]),
}


def rows_drawn(cells: tuple[Cells, ...], num: int, draw: np.random.Generator, noise: dn.Noise) -> tuple[NoisyRows, Any]:
    """Draw values evenly from the domain, and noise on them; row i is record i."""
    truths = np.array([draw.integers(0, one.domain.num_steps + 1, num) for one in cells])
    seen = [one.steps(one.perturb(one.domain.grid_values(w), noise)) for one, w in zip(cells, truths, strict=True)]
    nothing = np.zeros(num, dtype=np.int64)
    names = tuple(f"x{i}" for i in range(len(cells)))
    return NoisyRows(names=names, cells=cells, rows=np.arange(num), steps=np.array(seen), stratum=nothing), truths


def cut(last: int, borders: tuple[int, ...], law: str, epsilon: int) -> Cells:
    domain, parts = dn.Numeric(lower=0, upper=last, resolution=1), [Fraction(border) for border in borders]
    return Cells.cut(domain, parts, law=law, epsilon=Fraction(epsilon), confidence=Fraction(9, 10))


def test_corrected_belief_is_right_and_the_printed_one_is_not(thorough: bool) -> None:
    draw, noise, num = np.random.default_rng(2), dn.Noise(), 12
    everyone, nothing = np.arange(num), np.zeros(num, dtype=np.int64)
    for cells, printed_is_wrong in (
        ((cut(100, (), "laplace", 3),), False),  # one cell: off by the clamped ends alone
        ((cut(100, (5, 35, 65, 95), "laplace", 1),), True),
        ((cut(60, (), "piecewise", 3),), False),
        ((cut(100, (30,), "laplace", 2), cut(20, (), "piecewise", 2)), False),
    ):
        gaps = []
        for _ in range(800 if thorough else 400):
            rows, truths = rows_drawn(cells, num, draw, noise)
            both = [attack_rows(rows, truths, nothing, everyone, as_printed=printed) for printed in (False, True)]
            gaps.append([float((one.stated - one.hit).mean()) for one in both])
        mean, error = np.mean(gaps, axis=0), np.std(gaps, axis=0) / math.sqrt(len(gaps))
        assert abs(mean[0]) < FAR * error[0], cells
        assert not printed_is_wrong or abs(mean[1]) > FAR * error[1]


def test_what_is_expected_of_a_release_is_what_guesses_come_to() -> None:
    """The closed form from the release alone, over all values a record may have, against guesses counted."""
    cells, draw, noise, num = cut(100, (40,), "laplace", 3), np.random.default_rng(3), dn.Noise(), 10
    data = load(num)
    release = publish(dn.NoisyClusters(epsilon=3, borders=[40]), data).release
    gaps = []
    for _ in range(300):
        rows, truths = rows_drawn((cells,), num, draw, noise)
        table = release.data.set_column(1, "weight", pa.array(rows.steps[0].astype(np.float64)))
        again = dn.Release(certificate=release.certificate, data=table)
        hit = attack_rows(rows, truths, np.zeros(num, dtype=np.int64), np.arange(num)).hit.mean()
        gaps.append(float(noisy_linkage(again, np.arange(num)).mean - hit))
    assert abs(np.mean(gaps)) < FAR * np.std(gaps) / math.sqrt(len(gaps))


def test_drawing_the_noise_again_agrees_with_belief_over_many_datasets() -> None:
    gaps = []
    for seed in range(60):
        data = load(15, seed, town=True)
        publication = publish(dn.NoisyValues(epsilon=5), data)
        case = NoisyTruth.of(NoisyView.of(publication.release), data, publication.key)
        for one, _ in simulate(case, np.arange(15), 20):
            gaps.append(float((one.stated - one.hit).sum()))
    # Draws on one dataset share its values, whose fit to the prior varies: datasets are the trials.
    means = np.reshape(gaps, (60, 20)).mean(axis=1)
    assert abs(means.mean()) < FAR * means.std(ddof=1) / math.sqrt(60)


@pytest.mark.parametrize("name", MECHANISMS)
def test_findings_are_those_counted_by_hand(name: str) -> None:
    data = load(40, 4, town=True)
    release, key = publish(MECHANISMS[name], data)
    found = dn.audit(release, data, key=key)
    row, weights = row_of_record(data, key), data.numbers("weight")
    codes = combinations(release, ["town"])
    posterior = row_posterior(release, {"weight": weights}, codes[row])
    best = posterior.max(axis=1)
    ties = posterior == best[:, None]
    hits = ties[np.arange(40), row] / ties.sum(axis=1)
    assert found.finding("identification probability").value == pytest.approx(best.mean())
    linked = found.finding("record linkage")
    assert linked.value == pytest.approx(hits.mean())
    assert linked.interval[0] < linked.value < linked.interval[1]
    assert linked.baseline == pytest.approx(len(np.unique(codes)) / 40)
    printed = row_posterior(release, {"weight": weights}, codes[row], as_printed=True)
    assert linked.details["as_printed"]["stated"] == pytest.approx(printed.max(axis=1).mean())
    told, lower, upper = (release.data.column(f"weight{end}").to_numpy()[row] for end in ("", "_lower", "_upper"))
    assert found.finding("coverage (weight)").value == pytest.approx(np.mean((lower <= weights) & (weights <= upper)))
    assert found.finding("mean absolute error (weight)").value == pytest.approx(np.abs(told - weights).mean())
    assert found.finding("mean absolute error (weight)").baseline == pytest.approx(np.abs(50 - weights).mean())
    squared = found.finding("root mean squared error (weight)").value
    assert squared == pytest.approx(math.sqrt(((told - weights) ** 2).mean()))
    assert found.finding("interval width (weight)").value == pytest.approx((upper - lower).mean() / 100)
    assert found.at_risk[0].record_linkage == pytest.approx(posterior[np.arange(40), row].max())
    assert found.statistic == "noise"


def test_trucks_are_named_by_the_summed_probabilities() -> None:
    data = load(30, 5)
    release, key = publish(dn.NoisyClusters(epsilon=2, borders=[50]), data)
    bins = np.arange(30) % 4
    found = dn.audit(release, data, plan_of(release, bins), key=key)
    row = row_of_record(data, key)
    posterior = row_posterior(release, {"weight": data.numbers("weight")})
    chances = np.stack([posterior[:, bins == truck].sum(axis=1) for truck in range(4)], axis=1)
    assert found.finding("truck named").value == pytest.approx(np.mean(chances.argmax(axis=1) == bins[row]))
    assert found.finding("truck linkage").value == pytest.approx(noisy_linkage(release, bins).mean)
    assert found.finding("plan feasible").value == 1
    assert found.finding("objective ratio").value == 4
    assert "joint feasibility" not in {item.name for item in found.findings}


def test_no_guess_is_surer_than_epsilon_allows() -> None:
    """Whatever the true value is."""
    for name, mechanism in MECHANISMS.items():
        release, _ = publish(mechanism, load(24, 9))
        rows = NoisyRows.of(release)
        assert rows is not None
        bound = max_likelihood(rows)
        assert row_posterior(release, {"weight": np.arange(101)}).max() <= bound <= 1
        if name == "values":  # 24 rows, epsilon 3
            assert bound == pytest.approx(1 / (1 + 23 * math.exp(-6)))


def test_worst_risks_are_no_bounds_unless_every_value_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(60, 9)
    release, _ = publish(dn.NoisyValues(epsilon=1), data)
    whole = {item.name: item for item in dn.audit(release, external=True).findings}
    monkeypatch.setattr("dunnage.planning.linkage.MAX_WORK", 1)
    some = {item.name: item for item in dn.audit(release, external=True).findings}
    top = 1 / (1 + 59 * math.exp(-2))
    for name in ("prosecutor risk", "identification expected, worst"):
        assert whole[name].interval == (whole[name].value, whole[name].value)
        assert some[name].value <= whole[name].value <= some[name].interval[1] == pytest.approx(top)
        assert percent_at_most(top) in some[name].sentence
    assert some["journalist risk"].interval == (0.0, pytest.approx(top))


def test_two_columns_are_attacked_together() -> None:
    data = load(20, 6, names=("weight", "volume"), unit="")
    release, key = publish(dn.NoisyValues(epsilon=20), data)
    both = dn.audit(release, data, key=key)
    values = {name: data.numbers(name) for name in ("weight", "volume")}
    stated = row_posterior(release, values).max(axis=1).mean()
    assert both.finding("identification probability").value == pytest.approx(stated)
    assert both.finding("coverage (volume)").baseline >= 0.9
    for name in ("mean absolute error (weight)", "root mean squared error (volume)"):
        assert both.finding(name).unit == "units"


def test_an_external_audit_has_only_what_release_and_plan_tell() -> None:
    data = load(30, 7, town=True)
    release, key = publish(dn.NoisyValues(epsilon=2), data)
    plan = plan_of(release, np.arange(30) % 3)
    whole, handed_out = dn.audit(release, data, plan, key=key), dn.audit(release, plan=plan, external=True)
    public = {item.name: item for item in whole.findings if not item.private}
    assert {item.name for item in handed_out.findings} == set(public)
    assert all(item.to_dict() == public[item.name].to_dict() for item in handed_out.findings)
    assert {"identification expected", "interval width (weight)", "truck linkage"} <= set(public)
    assert not handed_out.at_risk


def test_without_the_key_belief_is_all_there_is_and_what_cannot_be_asked_is_said() -> None:
    data = load()
    release, key = publish(dn.NoisyValues(epsilon=2), data)
    with_key, without = dn.audit(release, data, key=key), dn.audit(release, data)
    name = "identification probability"
    assert without.finding(name).to_dict() == with_key.finding(name).to_dict()
    assert len(without.notes) == len(with_key.notes) + 1
    assert not {"record linkage", "coverage (weight)"} & {item.name for item in without.findings}
    found = dn.audit(release, data, key=key, tolerance=0.1, population=data, also=[(release, data, key)])
    assert len(found.notes) == 3
    release, key = publish(dn.NoisyValues(epsilon=1, confidence=0), data)
    found = dn.audit(release, data, key=key)
    assert found.finding("coverage (weight)").baseline == 0
    assert found.finding("interval width (weight)").value == 0


def test_a_release_without_laws_is_attacked_by_the_nearest_value() -> None:
    data = load(40, 8, town=True)
    release, key = publish(dn.NoisyClusters(epsilon=2, quantiles=[0.3, 0.7], as_published=True), data)
    found = dn.audit(release, data, plan_of(release, np.arange(40) % 4), key=key)
    row, weights, told = row_of_record(data, key), data.numbers("weight"), release.data.column("weight").to_numpy()
    towns = release.data.column("town").to_numpy(zero_copy_only=False)
    expected = []
    for record in range(40):
        far = np.where(towns == towns[row[record]], np.abs(told - weights[record]), np.inf)
        expected.append(float(far[row[record]] == far.min()) / float((far == far.min()).sum()))
    case = NoisyTruth.of(NoisyView.of(release), data, key)
    assert nearest_hits(case, np.arange(40))[np.argsort(case.records)].tolist() == pytest.approx(expected)
    assert found.finding("record linkage").value == pytest.approx(np.mean(expected))
    assert found.finding("coverage (weight)").baseline == 0.9
    names = {item.name for item in found.findings}
    assert "plan feasible" in names
    assert not {"truck linkage", "identification expected", "truck named"} & names
    assert len(found.notes) == len(dn.audit(release, external=True).notes) == 1


def test_many_rows_are_attacked_in_part(within: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = load(30_000, 9)
    release, key = publish(dn.NoisyValues(epsilon=4), data)
    with within(20):
        found = dn.audit(release, data, key=key)
    stated = found.finding("identification probability")
    assert stated.interval[0] < stated.value < stated.interval[1]
    assert 100 < found.finding("record linkage").details["attacked"] < 30_000
    data = load(20)
    release, key = publish(dn.NoisyValues(epsilon=4), data)
    assert len(found.notes) == len(dn.audit(release, data, key=key).notes) + 1
    for some in (1, 7):
        assert len(np.unique(NoisyTruth.of(NoisyView.of(release), data, key).some(some * 20))) == some
        monkeypatch.setattr(noisy, "MAX_PAIRS", some * 20)
        assert dn.audit(release, data, key=key).finding("record linkage").details["attacked"] == some


def test_other_data_and_other_releases_are_refused() -> None:
    data = load()
    release, key = publish(dn.NoisyValues(epsilon=2), data)
    for other, its_key in ((load(39), None), (load(40, 99), key), (load(40, names=("volume",)), key)):
        with pytest.raises(ReleaseError, match="'weight'" if "volume" in str(other.schema) else None):
            dn.audit(release, other, key=its_key)
    with pytest.raises(ParameterError):
        dn.audit(release, data, plan_of(release, np.zeros(39, dtype=int)), key=key)
    stated = dn.Certificate.model_validate({**release.certificate.plain(), "measures": {"records": 40}})
    with pytest.raises(ParameterError):
        dn.audit(dn.Release(certificate=stated, data=release.data), external=True)


@pytest.mark.parametrize("name", [*MECHANISMS, "published", "sampled", "left out"])
def test_audits_are_written_and_read_with_a_page(name: str, tmp_path: Path) -> None:
    others: dict[str, Any] = {
        "published": dn.NoisyClusters(epsilon=2, quantiles=[0.3, 0.7], as_published=True),
        "sampled": dn.SampledLattice(k=3, beta=0.8, epsilon_choice=5),
        "left out": dn.SampledLattice(k=3, beta=0.6, epsilon_choice=5, left_out="noisy", left_out_epsilon=2),
    }
    data = load(60, 3)
    publication = publish({**MECHANISMS, **others}[name], data)
    publication.write(tmp_path / "release")
    found = dn.audit(tmp_path / "release", data)
    write_audit(found, tmp_path / "audit")
    assert dn.Audit.read(tmp_path / "audit").to_dict() == found.to_dict()
    page = (tmp_path / "audit" / "audit.html").read_text()
    assert all(item.name in page for item in found.findings)
    assert "PRIVATE-" not in page
    assert found.summary()
    external = dn.audit(tmp_path / "release", external=True)
    assert all(not item.private for item in external.findings)
    assert "nan" not in audit_page(external).lower().replace("finance", "")


def test_identification_in_a_sample_follows_from_classes_and_rate() -> None:
    data = load(200, 10, town=True)
    release, key = publish(dn.SampledLattice(k=4, beta=0.7, epsilon_choice=8), data)
    found = dn.audit(release, data, plan_of(release, np.arange(len(release)) % 5), key=key)
    assert found.finding("plan feasible").value == 1
    sizes = np.bincount(release.data.column("class_id").to_numpy())
    assert found.finding("identification before release").value == pytest.approx(0.7 / 4)
    assert found.finding("identification given the class").value == pytest.approx(len(sizes) / sizes.sum())
    worst = found.finding("identification given the class, worst")
    assert worst.value == 1 / sizes.min()
    assert worst.value <= worst.details["k_anonymous"] == 0.25
    drawn = found.finding("identification by simulation")
    assert drawn.value <= drawn.details["bound"]
    reach = (drawn.interval[1] - drawn.interval[0]) / 2 / 1.96
    assert abs(drawn.value - drawn.details["computed"]) < FAR * reach
    assert found.finding("record linkage").value == pytest.approx(len(sizes) / sizes.sum())
    told = found.finding("records in classes")
    assert told.private
    assert told.details["suppressed"] == key.facts["suppressed"]
    # Levels group records as the release does.
    group, row = sampled.groups_at_levels(ClassesView.of(release), data), row_of_record(data, key)
    kept = np.flatnonzero(row >= 0)
    class_id = release.data.column("class_id").to_numpy()[row[kept]]
    pairs = set(zip(group[kept].tolist(), class_id.tolist(), strict=True))
    assert len(pairs) == len({g for g, _ in pairs}) == len({c for _, c in pairs})


def test_named_before_release_is_the_sum_over_all_samples() -> None:
    beta = Fraction(3, 10)
    for sizes, k in (((3,), 2), ((2, 4), 2), ((1, 5), 3), ((2, 2, 2), 4)):
        group = np.repeat(np.arange(len(sizes)), sizes)
        expected = Fraction(0)
        for sample in itertools.product((False, True), repeat=len(group)):
            chance = math.prod((beta if one else 1 - beta for one in sample), start=Fraction(1))
            counts = np.bincount(group[np.array(sample)], minlength=len(sizes))
            for record in np.flatnonzero(sample):
                if counts[group[record]] >= k:  # its row is one of as many
                    expected += chance / int(counts[group[record]]) / len(group)
        assert sampled.named_before(np.array(sizes), beta, k) == pytest.approx(float(expected))
        assert expected <= beta / k


def test_a_sample_without_rows_is_audited() -> None:
    data = load(30)
    release, key = publish(dn.SampledLattice(k=100, beta=0.5, epsilon_choice=1), data)
    assert not len(release)
    found = dn.audit(release, data, key=key)
    names = {"identification before release", "identification by simulation", "records in classes"}
    assert {item.name for item in found.findings} == names
    assert found.notes == (words("no class"),)
    assert audit_page(found)
    assert [item.name for item in dn.audit(release, external=True).findings] == ["identification before release"]
    with pytest.raises(ReleaseError):
        dn.audit(release, load(30, 2), key=key)
    with pytest.raises(ReleaseError, match="'weight'"):
        dn.audit(release, load(30, names=("volume",)))
    tree = {"kind": {"role": "quasi-identifier", "kind": "tree", "parents": {"a": "*", "b": "*"}}}
    mechanism = {"name": "sampled-lattice", "k": 9, "beta": 0.5, "epsilon_choice": 1}
    data = dn.load(pa.table({"kind": ["a"]}), a_policy(mechanism, tree))
    release, key = dn.publish(data, ledger=dn.Ledger(":memory:"))
    assert dn.audit(release, data, key=key).findings
    assert dn.audit(release, external=True).findings


def test_an_external_audit_of_a_sample_tells_no_count_of_what_was_left_out() -> None:
    data = load(397, 12)
    release, _ = publish(dn.SampledLattice(k=6, beta=0.6, epsilon_choice=5), data)
    found = dn.audit(release, external=True)
    text = json.dumps(found.to_dict() | {"release": "", "seconds": 0})
    # As a number of its own, not among the digits of another.
    assert not re.search(r"(?<![\d.])397(?![\d.])", text)
    assert "suppressed," not in text
    assert "unsampled" not in text


def test_left_out_records_are_attacked_beside_classes() -> None:
    data = load(150, 13)
    mechanism = dn.SampledLattice(k=4, beta=0.6, epsilon_choice=8, left_out="noisy", left_out_epsilon=4)
    release, key = publish(mechanism, data)
    noisy_rows = int((release.data.column("class_id").to_numpy() < 0).sum())
    plan = plan_of(release, np.arange(150) % 5)
    found = dn.audit(release, data, plan, key=key)
    assert found.finding("record linkage, left out").details["attacked"] == noisy_rows
    assert found.finding("coverage (weight), left out").baseline >= 0.9
    names = {item.name for item in found.findings}
    assert not {"identification before release", "identification by simulation"} & names
    assert found.finding("truck linkage").value == pytest.approx(noisy_linkage(release, plan.assignment).mean)
    without = dn.audit(release, data)
    assert not any("left out" in item.name for item in without.findings if item.private)
    assert len(without.notes) == 2
