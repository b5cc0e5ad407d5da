# SPDX-License-Identifier: Apache-2.0
"""What newcomers are told on their way to advice: errors that say what to write, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.builders import a_trip_policy

from dunnage.collecting.files import RowFile
from dunnage.collecting.tasks import carriers_from_text
from dunnage.errors import InputError, PolicyError
from dunnage.model.policy import Policy
from dunnage.publishing import mechanism_of
from dunnage.tables.dataset import Dataset
from dunnage.tables.gtfs import load_city

WEIGHT = {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100]}


def _document(**mechanism: Any) -> dict[str, Any]:
    return {"dataset": "d", "protects": "package", "attributes": {"weight": WEIGHT}, "mechanism": mechanism}


def test_other_names_of_columns_are_given_by_options(tmp_path):
    path = tmp_path / "fleet.csv"
    path.write_text("plate,at,x\nA,2026-11-16 08:00,1\n")
    with pytest.raises(InputError) as error:
        RowFile(path, numbers=["lon"], time="time", labels=["vehicle", "tier"])
    told = {problem.where: str(problem) for problem in error.value.problems}
    assert "Name it with --vehicle-column" in told["vehicle"]
    assert "Name it with --time-column" in told["time"]
    assert "Name it with --tiers-column" in told["tier"]
    assert "--place-columns" in told["lon"]


def test_rows_of_devices_need_commas(tmp_path):
    path = tmp_path / "fleet.csv"
    for mark in (";", "\t"):
        path.write_text(f"vehicle{mark}speed\nA{mark}1\n")
        with pytest.raises(InputError, match="the file has one column; devices read commas") as error:
            RowFile(path, numbers=["speed"], labels=["vehicle"])
        assert "no such column" not in str(error.value)


def test_blank_role_of_a_device_policy_is_all_that_is_said():
    text = (
        'dataset = "fleet"\nprotects = "vehicle"\n[attributes.vehicle]\nrole = ""\n[attributes.speed]\nrole = ""\n'
        "[schedule]\nslots_per_day = 1\n[allowance]\nday = 1\nlifetime = 10\n"
        '[mechanisms.telemetry]\nname = "local-numeric"\nepsilon = 1\n'
    )
    with pytest.raises(PolicyError) as error:
        carriers_from_text(text)
    assert [problem.where for problem in error.value.problems] == ["attributes.vehicle.role", "attributes.speed.role"]


def test_what_is_no_number_may_be_written_in_another_way():
    policy = Policy.from_dict(_document(name="partition", k=2))
    with pytest.raises(InputError) as error:
        Dataset.from_table(pa.table({"weight": ["1,5", "2", "n/a"]}), policy)
    assert 'or set [read] decimal = "," or null = ["n/a"]' in str(error.value)
    read = {"decimal": ",", "delimiter": ";", "null": ["n/a"]}
    policy = Policy.from_dict({**_document(name="partition", k=2), "read": read})
    assert len(Dataset.from_table(pa.table({"weight": ["1,5", "2"]}), policy)) == 2


def test_advice_is_offered_for_what_a_draft_leaves_blank():
    for mechanism, blank in (("partition", {"k": ""}), ("noisy-values", {"epsilon": ""}), ("partition", {"k": []})):
        with pytest.raises(PolicyError, match="let dunnage advise choose"):
            Policy.from_dict(_document(name=mechanism, **blank))


def test_features_that_need_less_are_named():
    for mechanism, fewer in (("constrained-counts", "O3"), ("hierarchical-counts", "H3")):
        table = {"name": mechanism, "epsilon": 1, "features": fewer.replace("3", "5")}
        city = {"city": {"stops": "stops.csv"}}
        with pytest.raises(PolicyError, match=f'or write features = "{fewer}"'):
            mechanism_of(a_trip_policy(table, **city))
        assert mechanism_of(a_trip_policy({**table, "features": fewer}, **city))


def test_file_of_stops_is_no_city(tmp_path: Path):
    (tmp_path / "stops.csv").write_text("stop\nA\nB\n")
    with pytest.raises(InputError, match=r"a city is a folder with stops\.csv, or a GTFS feed") as error:
        load_city(tmp_path / "stops.csv")
    assert f"Name the folder: {tmp_path}." in str(error.value)
