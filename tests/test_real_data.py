# SPDX-License-Identifier: Apache-2.0
"""The owner's path on real public data: taxi trips with zones, fares and missing cells."""

from __future__ import annotations

import pyarrow.csv as pacsv
import pytest
from tests.refusals import refusal

import dunnage as dn

pytestmark = pytest.mark.data

POLICY = """
dataset = "taxis"
protects = "trip"
small = "suppress"

[attributes.pickup_borough]
role = "public"
missing = "leave-out"

[attributes.payment]
role = "sensitive"
missing = "leave-out"

[attributes.fare]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 250]
resolution = 0.01
unit = "USD"

[mechanism]
name = "partition"
k = 20
statistic = "mean"
"""


@pytest.fixture(scope="module")
def taxis(data_folder):
    path = data_folder / "nyc_taxis_seaborn" / "taxis.csv"
    columns = pacsv.read_csv(path).column_names
    dropped = [name for name in columns if name not in ("pickup_borough", "payment", "fare")]
    return path, POLICY + "".join(f'\n[attributes.{name}]\nrole = "drop"\n' for name in dropped)


def test_taxi_trips_are_published_and_verified(taxis, tmp_path):
    path, text = taxis
    data = dn.load(path, dn.Policy.from_text(text))
    release, key = dn.publish(data, ledger=tmp_path / "ledger.sqlite", out=tmp_path / "release")
    assert dn.verify(tmp_path / "release").ok
    measures = release.certificate.plain()["measures"]
    assert measures["k_reached"] >= 20
    assert measures["records"] + measures["suppressed"]["count"] + data.num_left_out == 6433
    assert measures["sensitive"]["payment"]["l"] >= 1
    fare, weights = data.numbers("fare"), release.uncertain("fare")
    position = {source: index for index, source in enumerate(data.source_rows.tolist())}
    for row, source in zip(key.table["row"].to_pylist(), key.table["source_row"].to_pylist(), strict=True):
        assert weights.lower[row] <= fare[position[source]] <= weights.upper[row]


def test_small_boroughs_and_missing_cells_are_refused_by_default(taxis):
    path, text = taxis
    strict = dn.Policy.from_text(text.replace('small = "suppress"\n', "").replace("k = 20", "k = 2000"))
    message = str(refusal(dn.Refusal, dn.publish, dn.load(path, strict), ledger=":memory:"))
    assert all(word in message for word in ("pickup_borough", "2000"))
    complete = dn.Policy.from_text(text.replace('missing = "leave-out"\n', ""))
    problems = refusal(dn.InputError, dn.load, path, complete).problems
    assert [problem.num_rows for problem in problems] == [26, 44]
    assert all(name in problem.where for name, problem in zip(("pickup_borough", "payment"), problems, strict=True))
