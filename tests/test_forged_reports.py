# SPDX-License-Identifier: Apache-2.0
"""Forged reports: the law of set bits, its test, and estimates that leave out what no honest device sends."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from tests.commands import run
from tests.estimates_help import GRID, refuses

from dunnage.collecting.forged import (
    bits_law,
    bits_p_value,
    bits_warnings,
    given_bits,
    robust_maps,
    total_bits_p_value,
    widened,
)
from dunnage.collecting.frames import Source, tally_reports
from dunnage.devices.client import mechanism_of
from dunnage.devices.places import OptimisedUnary, SymmetricUnary
from dunnage.devices.report import Report
from dunnage.devices.subjects import Grid
from dunnage.devices.task import Limits, Purpose, Schedule, Task, Tier
from dunnage.errors import ParameterError
from dunnage.noise.source import Noise

DAY = 20_000


def map_task(epsilon="1", grid=None, **parameters):
    grid = grid or Grid(box=("103.9", "30.5", "104.2", "30.8"), levels=4)
    places = Purpose(
        name="places",
        mechanism="local-location",
        tiers=(Tier(name="all", epsilon=epsilon),),
        grid=grid,
        parameters={"method": "optimised-unary", **parameters},
    )
    return Task(
        dataset="fleet",
        purposes=(places,),
        schedule=Schedule(),
        limits=Limits(lifetime="1000", allow_unbounded=True),
    )


def honest_bits(task, cells, seed):
    """Rows of bits as devices of the task sample them, by the definition of the law."""
    oracle, generator = mechanism_of(task, task.purposes[0]).oracle("all"), np.random.default_rng(seed)
    bits = generator.random((len(cells), oracle.num_inputs)) < oracle.q
    bits[np.arange(len(cells)), cells] = generator.random(len(cells)) < oracle.p
    return bits


def source_of(task, bits, seed=1, area=None):
    ids = np.random.default_rng(seed).integers(0, 256, (len(bits), 16), dtype=np.uint8)
    num_bytes = -(-(bits.shape[1] + (2 if area is not None else 0)) // 8)
    reports = []
    for at, row in enumerate(bits):
        number = int("".join("1" if bit else "0" for bit in row[::-1]), 2)
        number |= 0 if area is None else int(area[at]) << bits.shape[1]
        payload, report_id = number.to_bytes(num_bytes, "little"), ids[at].tobytes()
        reports.append(
            Report(task=task.prefix, purpose=0, tier=0, day=DAY, slot=5, report_id=report_id, payload=payload)
        )
    return Source.of_reports([*reports, *reports[:50]])  # some come twice


@pytest.mark.parametrize("kind", [OptimisedUnary, SymmetricUnary])
def test_law_of_bits_by_enumeration(kind):
    """All inputs and symbols of a small law: the numbers of bits, and the chances given such numbers."""
    oracle = kind(num_inputs=5, epsilon=1)
    for own in (0, 3):
        chance = {}
        for bits in itertools.product((0, 1), repeat=5):
            p = [oracle.p if at == own else oracle.q for at in range(5)]
            chance[bits] = np.prod([one if bit else 1 - one for bit, one in zip(bits, p, strict=True)])
        by_number = [sum(c for bits, c in chance.items() if sum(bits) == num) for num in range(6)]
        assert np.allclose(by_number, bits_law(oracle), atol=1e-12)
        for weights in ([0, 1, 1, 0, 0, 0], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 1], by_number):
            given = given_bits(oracle, np.array(weights, dtype=float))
            for at in range(5):
                mean = sum(c / by_number[sum(b)] * weights[sum(b)] for b, c in chance.items() if b[at]) / sum(weights)
                assert mean == pytest.approx(given.p if at == own else given.q)


def test_p_values_are_p_values():
    """Exactly, for few reports: the chance of a p-value of at most x is at most x. And the devices' law is this one."""
    oracle = OptimisedUnary(num_inputs=3, epsilon=1)
    law = bits_law(oracle)
    found = []
    for numbers in itertools.combinations_with_replacement(range(4), 6):
        counts = np.bincount(numbers, minlength=4)
        ways = np.prod([np.arange(1, n + 1).prod() for n in counts])
        found.append((bits_p_value(counts, law), 720 / ways * np.prod(law**counts)))
    assert sum(chance for _, chance in found) == pytest.approx(1)
    for level in (0.2, 0.05, 0.01, 0.001):
        assert sum(chance for p, chance in found if p <= level) <= level
    noise, wide = Noise(), OptimisedUnary(num_inputs=20, epsilon=1)
    counts = np.bincount([wide.perturb(at % 20, noise).bit_count() for at in range(3000)], minlength=21)
    assert bits_p_value(counts, bits_law(wide)) > 1e-9


def test_forged_reports_are_found_and_left_out():
    """1 % of reports with one bit set: the plain map shows a full cell that is empty, the robust one does not."""
    task, num = map_task(), 6000
    cells = np.random.default_rng(5).integers(0, 30, num)  # cells 30 to 64 are empty
    honest = honest_bits(task, cells, 7)
    fine = robust_maps(task, [source_of(task, honest)])["places"]
    assert fine.checks[0].num_reports == num
    assert fine.checks[0].p_value > 1e-9
    assert not fine.checks[0].alarm
    assert fine.differing == []
    assert fine.checks[0].num_unlikely < 60
    assert np.abs(fine.plain.value - fine.robust.value).max() < 0.005
    forged = honest.copy()
    forged[:60] = False
    forged[:60, 50] = True
    source = source_of(task, forged)
    caught = robust_maps(task, [source])["places"]
    assert caught.checks[0].alarm
    assert caught.checks[0].p_value < 1e-100
    assert 50 < caught.checks[0].num_unlikely < 120
    assert caught.checks[0].bits == 1
    assert caught.checks[0].influence == pytest.approx(3.16, abs=0.01)
    assert caught.plain.value[50] - caught.robust.value[50] > 0.02
    assert caught.robust.lower[50] == 0
    true = np.bincount(cells, minlength=65) / num
    assert np.mean((caught.robust.lower <= true) & (true <= caught.robust.upper)) > 0.8
    # Tallies alone have only the number of all bits, which sees less.
    mechanism = mechanism_of(task, task.purposes[0])
    (tally,) = tally_reports(task, [source]).by_tier.values()
    assert caught.checks[0].p_value < total_bits_p_value(mechanism, tally) < 0.1
    assert "do not come from honest devices" in caught.lines()[0]
    assert set(caught.to_dict()) == {"checks", "plain", "robust", "differing", "assumption"}


def test_imitators_are_not_found_but_bounded():
    """A forger who samples like a device and then sets one bit: no check sees it, and the widened interval holds."""
    task, num = map_task(), 6000
    honest = honest_bits(task, np.random.default_rng(5).integers(0, 30, num), 8)
    honest[:60, 50] = True
    caught = robust_maps(task, [source_of(task, honest)])["places"]
    assert not caught.checks[0].alarm
    oracle = mechanism_of(task, task.purposes[0]).oracle("all")
    safe = widened(caught.plain, oracle, 0.01)
    assert safe.lower[50] == 0
    assert np.all(safe.upper >= caught.plain.upper)
    assert np.all(widened(caught.plain, oracle, 0).lower == caught.plain.lower)
    for share in (-0.1, 1, float("nan")):
        with refuses(ParameterError, share):
            widened(caught.plain, oracle, share)


def test_areas_in_clear_and_other_laws():
    task = map_task(grid=GRID, area_in_clear=True)
    mechanism = mechanism_of(task, task.purposes[0])
    oracle, generator = mechanism.oracle("all"), np.random.default_rng(3)
    num, inner = 3000, generator.integers(0, 4, 3000)
    bits = generator.random((num, oracle.num_inputs)) < oracle.q
    bits[np.arange(num), inner] = generator.random(num) < oracle.p
    made = robust_maps(task, [source_of(task, bits, area=generator.integers(0, 4, num))])["places"]
    assert made.checks[0].num_reports == num
    assert not made.checks[0].alarm
    assert made.robust.value.sum() == pytest.approx(1)
    chosen = map_task(method="subset-selection")  # sets of a fixed size: any other number of bits is impossible
    law, noise = mechanism_of(chosen, chosen.purposes[0]).oracle("all"), Noise()
    sets = [law.perturb(at % 64, noise) for at in range(200)]
    rows = np.array([[one >> bit & 1 for bit in range(law.num_inputs)] for one in sets], dtype=bool)
    source = source_of(chosen, rows)
    assert robust_maps(chosen, [source]) == {}
    assert bits_warnings(chosen, tally_reports(chosen, [source])) == []
    assert tally_reports(chosen, [source]).num_reports == 200
    other = map_task(method="hadamard")
    source = Source.of_reports([])
    assert robust_maps(other, [source]) == {}


def test_estimate_shows_forged_reports(tmp_path):
    task, num = map_task(), 2000
    (tmp_path / "task.json").write_text(task.to_json())
    bits = honest_bits(task, np.random.default_rng(5).integers(0, 30, num), 7)
    bits[:200] = False
    bits[:200, 50] = True
    source = source_of(task, bits)
    (tmp_path / "reports.bin").write_bytes(source.open().read())
    options = ["--task", tmp_path / "task.json", "--robust", "--allow-noise"]
    done = run("estimate", tmp_path / "reports.bin", *options, "-o", tmp_path / "out", "--json")
    made = done.json()["robust"]["places"]
    assert made["checks"][0]["alarm"]
    assert made["checks"][0]["bits"] == 1
    assert 50 in made["differing"]
    assert "some reports are forged" in done.err
    (tmp_path / "tallies.json").write_text(json.dumps(tally_reports(task, [source]).to_dict()))
    run("estimate", tmp_path / "tallies.json", *options, "-o", tmp_path / "more").refused("tallies")
