# SPDX-License-Identifier: Apache-2.0
"""What people read names what the policy protects, says when it is noise, and has a way on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dunnage as dn
from dunnage.errors import OutputError, ParameterError
from dunnage.folders import check_new_folder
from dunnage.mechanisms.noisy import foresee_intervals
from dunnage.planning.plan import LinkageOffer


def released(mechanism: dict[str, Any]) -> tuple[dn.Dataset, dn.Release, Any]:
    weight = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 30], "resolution": 1, "unit": "kg"}
    document = {"dataset": "d", "protects": "crate", "attributes": {"weight": weight}, "mechanism": mechanism}
    table = pa.table({"weight": np.random.default_rng(1).integers(1, 30, 60)})
    data = dn.Dataset.from_table(table, dn.Policy.from_dict(document))
    return data, *dn.publish(data, noise=dn.Noise(seed=1), ledger=":memory:")


def test_rows_that_are_noise_are_called_so_from_public_facts() -> None:
    for epsilon, noise in ((0.5, True), (1.5, True), (40, False)):
        data, _, _ = released({"name": "noisy-values", "epsilon": epsilon})
        warnings = foresee_intervals(dn.NoisyValues(epsilon=epsilon).cells(data.schema)).warnings
        assert any("NOISE" in line for line in warnings) == noise, epsilon


def test_settlements_show_themselves_and_name_what_is_protected(tmp_path) -> None:
    data, release, key = released({"name": "partition", "k": 3, "statistic": "multiset"})
    plan = dn.pack(release, capacity=200, seconds=1)
    done = dn.apply(plan, data, release, key)
    assert done._repr_html_().startswith("<pre>Bins")
    (tmp_path / "house.toml").write_text('name = "h"\n[limits]\nmax_truck_linkage = 0.01\n')
    assert "a crate" in str(dn.House.read(tmp_path / "house.toml").of_linkage(0.5, plan.protects)[0])


def test_a_high_linkage_never_claims_what_was_not_tried() -> None:
    _, release, _ = released({"name": "partition", "k": 3, "statistic": "multiset"})
    plan = dn.pack(release, capacity=200, seconds=1)
    object.__setattr__(plan, "lower_linkage", ())
    object.__setattr__(plan, "least_linkage", plan.truck_linkage.mean / 2)
    assert "--extra-trucks" in plan.linkage_advice
    object.__setattr__(plan, "lower_linkage", (LinkageOffer(extra_trucks=2, mean=0.1),))
    assert "2 extra trucks" in plan.linkage_advice


def test_size_says_what_it_takes_and_files_that_exist_are_kept(tmp_path) -> None:
    _, release, _ = released({"name": "partition", "k": 3, "statistic": "multiset"})
    with pytest.raises(ParameterError):
        dn.size("city", release)
    with pytest.raises(OutputError, match="--force"):
        check_new_folder(tmp_path, marker="x", force=False)
