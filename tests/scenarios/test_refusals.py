# SPDX-License-Identifier: Apache-2.0
"""Bad input: what is said, and the exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.scenarios.harness import Here, check
from tests.scenarios.inputs import (
    EDGES,
    MODES,
    STOPS,
    parcel_policy,
    parcels,
    rides,
    rides_policy,
    trips,
    trips_policy,
)

GOOD = parcel_policy("partition", k=4)
POLICIES = {
    "several": GOOD.replace('role = "identifier"', 'role = "secret"')
    .replace("domain = [0, 100]", "domain = [100, 0]")
    .replace('protects = "package"', "protects = 3"),
    "unknown-mechanism": GOOD.replace('"partition"', '"partitoin"'),
    "misspelt": GOOD + 'statstic = "mean"\n',
    "misspelt-attribute": GOOD.replace("resolution", "resolutoin"),
    "misspelt-top": GOOD.replace("protects", "protect"),
    "no-k": GOOD.replace("k = 4\n", ""),
    "k-1": parcel_policy("partition", k=1),
    "k-text": parcel_policy("partition", k="four"),
    "k-large": parcel_policy("partition", k=25),
    "statistic": parcel_policy("partition", k=4, statistic="median"),
    "no-mechanism": GOOD.split("[mechanism]")[0],
    "not-toml": GOOD + "= 3\n",
    "column-undeclared": GOOD.replace('[attributes.content]\nrole = "sensitive"\n', ""),
    "column-missing": GOOD.replace("[attributes.content]", "[attributes.contents]"),
    "outside": GOOD.replace("domain = [0, 100]", "domain = [0, 50]"),
    "width": GOOD.replace("resolution = 0.1", "resolution = 0.3"),
    "kind": GOOD.replace('kind = "numeric"', 'kind = "number"'),
    "sensitive-noise": parcel_policy("noisy-values", epsilon=1),
    "epsilon-0": parcel_policy("noisy-values", sensitive=False, epsilon=0),
    "law": parcel_policy("noisy-values", sensitive=False, epsilon=1, law="gauss"),
    "both-forms": parcel_policy("noisy-clusters", sensitive=False, epsilon=1, borders=[5], quantiles=[0.5]),
    "border": parcel_policy("noisy-clusters", sensitive=False, epsilon=1, borders=[500]),
    "lattice": parcel_policy("sampled-lattice", sensitive=False, k=3, epsilon_choice=1),
    "goal": parcel_policy("partition", k=4, goal="packing"),
    "suppressed": parcel_policy("full-domain", k=15, max_suppressed=0),
    "trips-mechanism": parcel_policy("noisy-counts", epsilon=1),
    "budget": parcel_policy(
        "noisy-values", sensitive=False, head='[budget]\nepsilon = 0.5\nneighbours = "replace-one"\n', epsilon=1
    ),
    "unbounded": GOOD.replace(
        "[attributes.parcel]", '[budget]\nepsilon = 1\nneighbours = "add-remove"\n[attributes.parcel]'
    ),
    "period": GOOD.replace("[attributes.parcel]", '[period]\ncolumn = "day"\nlength = "year"\n[attributes.parcel]'),
}


def policies(here: Here) -> None:
    here.write("data.csv", parcels(24))
    for name, text in POLICIES.items():
        here.write(f"{name}.toml", text)
        here.line(f"publish data.csv --policy {name}.toml -o release-{name}")
    here.line("publish data.csv --policy several.toml -o release --json")
    here.line("publish data.csv --policy budget.toml -o release --json")
    here.line("show several.toml")
    here.line("device task budget.toml -o task.json")


def test_policies(tmp_path: Path, record: bool) -> None:
    check("refused-policies", policies, tmp_path, record=record)


def other_policies(here: Here) -> None:
    here.write("rides.csv", rides())
    here.write("trips.csv", trips())
    here.write("edges.csv", EDGES)
    here.write("stops.csv", STOPS)
    here.write("modes.csv", MODES)
    texts = {
        "no-edges": ("rides.csv", rides_policy(k=4).replace("edges.csv", "none.csv")),
        "diversity": ("rides.csv", rides_policy(k=4, l=9)),
        "method": ("rides.csv", rides_policy(k=4, method="growht")),
        "persons": ("rides.csv", rides_policy(k=4, person=True, method="published-density")),
        "limits": ("rides.csv", rides_policy(k=4, limits={"star": 5})),
        "person-partition": ("rides.csv", rides_policy(k=4, person=True).replace("utility-clusters", "partition")),
        "graph-levels": ("rides.csv", rides_policy(k=4).replace("utility-clusters", "full-domain")),
        "both": ("rides.csv", rides_policy()),
        "no-stops": ("trips.csv", trips_policy("noisy-counts", epsilon=1).replace("stops.csv", "none.csv")),
        "stop-unknown": ("trips.csv", trips_policy("noisy-counts", epsilon=1)),
        "window": ("trips.csv", trips_policy("noisy-counts", epsilon=1).replace("= 60", "= 7.5")),
        "hours": ("trips.csv", trips_policy("noisy-counts", epsilon=1).replace('"10:00"', '"09:00"')),
        "features": ("trips.csv", trips_policy("constrained-counts", epsilon=1, features="O9")),
        "shares": ("trips.csv", trips_policy("constrained-counts", epsilon=1, budget_shares={"cells": 0.9})),
        "structure": ("trips.csv", trips_policy("constrained-counts", epsilon=1, structure="tree")),
        "threshold": ("trips.csv", trips_policy("noisy-counts", epsilon=1, threshold=0)),
        "partition": ("trips.csv", trips_policy("partition", k=3)),
    }
    here.write("trips.csv", trips())
    for name, (data, text) in texts.items():
        here.write(f"{name}.toml", text)
        if name == "stop-unknown":
            here.write("stops.csv", STOPS.replace("S4", "S9"))
        here.line(f"publish {data} --policy {name}.toml -o release-{name}")
        here.write("stops.csv", STOPS)


def test_other_policies(tmp_path: Path, record: bool) -> None:
    check("refused-rides-and-trips", other_policies, tmp_path, record=record)


def rows(here: Here) -> None:
    here.write("policy.toml", GOOD)
    good = parcels(24)
    changed = {
        "empty": "",
        "header": good.splitlines()[0] + "\n",
        "word": good.replace("P003,Antwerp,phones,64.3", "P003,Antwerp,phones,heavy"),
        "missing": good.replace("P000,Bremen,phones,20.0", "P000,Bremen,phones,"),
        "ragged": good + "P099,Bremen\n",
        "outside": good + "P099,Bremen,books,101\nP100,Bremen,books,-5\n",
        "stratum": good + "P099,Ghent,books,50\n",
        "twice": good.replace("parcel,destination", "parcel,parcel"),
    }
    for name, text in changed.items():
        here.write(f"{name}.csv", text)
        here.line(f"publish {name}.csv --policy policy.toml -o release")
    here.write("data.csv", good)
    here.write("release/notes.txt", "mine")
    here.write("note.txt", "mine")
    here.lines("""
        publish none.csv --policy policy.toml -o new
        publish data.csv --policy none.toml -o new
        publish data.csv --policy policy.toml
        publish data.csv --policy policy.toml -o release
        publish data.csv --policy policy.toml -o release --force
        publish data.csv --policy policy.toml -o new --period 2026-11
        publish data.csv --policy policy.toml -o new --ledger note.txt
        publish data.csv --policy policy.toml -o none/new
        publish data.csv --policy policy.toml -o new --seed -1
        publish data.csv --policy policy.toml -o new --sed 1
        publish data.csv --policy policy.toml -o new --dry-run --seed 1
        publish
        publsh
        draft none.csv -o drafted.toml
        draft data.csv -o policy.toml
        draft data.csv -o drafted.toml --story songs
        show none
        show note.txt
        show release
        verify release
        verify none
        generate packages -o policy.toml --seed 1
        generate packages -o p.csv --setting 25-X-U
        generate packages -o p.csv --law odd
        generate packages -o p.csv --low 5 --high 2
        generate rides -o r.csv --stations 5
        generate city -o c --stops 5
        generate trips -o t.csv --from 08:10
        prove nothing
        advise data.csv --policy policy.toml --goal trucks -o frontier
        advise data.csv --policy policy.toml --goal happiness -o frontier
        advise data.csv --policy policy.toml --goal shuttles -o frontier
    """)


def test_rows(tmp_path: Path, record: bool) -> None:
    check("refused-rows-and-words", rows, tmp_path, record=record)


def edit(path: Path, **values: Any) -> None:
    body = json.loads(path.read_text())
    body.update(values)
    path.write_text(json.dumps(body, indent=2, sort_keys=True) + "\n")


def broken_files(here: Here) -> None:
    here.write("data.csv", parcels(24))
    here.write("other.csv", parcels(22))
    here.write("policy.toml", GOOD)
    here.write("noisy.toml", parcel_policy("noisy-values", sensitive=False, epsilon=2))
    here.line("publish data.csv --policy policy.toml -o release --seed 1", quiet=True)
    here.line("publish data.csv --policy noisy.toml -o noisy --seed 1", quiet=True)
    here.line("pack release --capacity 200kg -o plan", quiet=True)
    here.line("audit release data.csv --policy policy.toml -o audit", quiet=True)

    def broken(name: str, source: str = "release") -> Path:
        shutil.copytree(here.folder / source, here.folder / name)
        return here.folder / name

    data = broken("rows-changed") / "data.csv"
    data.write_text(data.read_text().replace("Bremen", "Berlin"))
    (broken("file-lost") / "classes.csv").unlink()
    (broken("file-more") / "extra.csv").write_text("a\n1\n")
    edit(broken("basis-changed") / "certificate.json", basis="proved")
    edit(broken("format-changed") / "certificate.json", format=99)
    (broken("not-json") / "certificate.json").write_text("{")
    (broken("no-certificate") / "certificate.json").unlink()
    (broken("readme-changed") / "README.md").write_text("# Other\n")
    (broken("parquet-broken") / "data.parquet").write_bytes(b"PAR1")
    for name in ("rows-changed", "file-lost", "file-more", "basis-changed", "format-changed", "not-json",
                 "no-certificate", "readme-changed", "parquet-broken"):  # fmt: skip
        here.line(f"verify {name}")
        here.line(f"show {name}")
        here.line(f"pack {name} --capacity 200kg -o {name}-plan", quiet=False)
    here.line("verify rows-changed --json")
    (broken("plan-not-json", "plan") / "plan.json").write_text("[")
    edit(broken("plan-format", "plan") / "plan.json", format=99)
    edit(broken("plan-other", "plan") / "plan.json", release="0" * 64)
    (broken("plan-short", "plan") / "assignment.csv").write_text("row,bin\n0,0\n")
    (broken("plan-lost", "plan") / "plan.json").unlink()
    common = "--policy policy.toml --release release"
    for name in ("plan-not-json", "plan-format", "plan-other", "plan-short", "plan-lost"):
        here.line(f"show {name}")
        here.line(f"apply {name} data.csv {common} -o s-{name}")
    here.write("trucks.csv", "truck,count\nsmall,3\n")
    here.write("bad.sqlite", "not a ledger")
    here.lines(f"""
        apply plan other.csv {common} -o s
        apply plan data.csv --policy noisy.toml --release release -o s
        apply plan data.csv --policy policy.toml --release noisy -o s
        apply plan data.csv {common} --key noisy.key.parquet -o s
        apply plan data.csv {common} --key data.csv -o s
        apply plan data.csv {common} --city plan -o s
        audit release other.csv --policy policy.toml -o a
        audit noisy data.csv --policy policy.toml -o a
        audit release data.csv --policy policy.toml --key noisy.key.parquet -o a
        pack release -o p
        pack release --capacity 200kg --trucks trucks.csv -o p
        pack release --trucks trucks.csv -o p
        pack release --capacity heavy -o p
        pack release --capacity volume=5 -o p
        pack release --capacity 200t -o p
        pack release --capacity 200kg --by weight -o p
        pack release --capacity 200kg --by destiny -o p
        pack release --capacity 200kg --model best -o p
        pack release --capacity 200kg --model sealed --risk 0.1 -o p
        pack release --capacity 200kg --risk 2 -o p
        pack release --capacity 200kg --prior uniform -o p
        pack release --capacity 200kg --margin 1 -o p
        pack release --capacity 200kg --spread 1 -o p
        pack release --capacity 200kg -o plan
        pack noisy --capacity 300kg --model sealed -o p
        size release --city plan -o p
        budget show bad.sqlite
        show bad.sqlite
        show release/certificate.json
        show not-json/certificate.json
    """)
    edit(here.folder / "audit" / "audit.json", format=99)
    here.line("show audit")
    here.leave_out("*", "*/*")


def test_broken_files(tmp_path: Path, record: bool) -> None:
    check("refused-files", broken_files, tmp_path, record=record)


def carriers(here: Here) -> None:
    here.line("generate telemetry -o data.csv --size 10 --readings 3 --attributes 2 --seed 1", quiet=True)
    here.line("device task data.toml -o task.json", quiet=True)
    here.line("device simulate data.csv --task task.json --seed 1 -o reports.jsonl", quiet=True)
    policy, task = (here.folder / "data.toml").read_text(), (here.folder / "task.json").read_text()
    reports = (here.folder / "reports.jsonl").read_text()
    texts = {
        "no-tiers": policy.replace("basic = 1.0", "").replace("strict = 0.5", ""),
        "no-lifetime": policy.replace("lifetime = 30", ""),
        "day": policy.replace("lifetime = 30", "lifetime = 30\nday = 0.1"),
        "public": policy.replace('role = "drop"', 'role = "public"'),
        "method": policy + 'method = "hybird"\n',
        "misspelt": policy + "sampeld = 2\n",
        "mechanism": policy.replace("local-numeric", "local-numbers"),
        "slots": policy.replace("slots_per_day = 1", "slots_per_day = 0"),
    }
    for name, text in texts.items():
        here.write(f"{name}.toml", text)
        here.line(f"device task {name}.toml -o {name}.json")
    here.write("short.json", task[:-30])
    here.write("format.json", task.replace('"format": 1', '"format": 99').replace('"format":1', '"format":99'))
    here.write("changed.json", task.replace("130", "131"))
    here.write("damaged.jsonl", reports.replace('"crc32":"', '"crc32":"0', 1) + "nonsense\n")
    here.write("nonsense.jsonl", "nonsense\n")
    here.write("empty.jsonl", "")
    for name in ("short", "format", "changed"):
        here.line(f"show {name}.json")
        here.line(f"estimate reports.jsonl --task {name}.json -o e-{name}")
    days, perturb = "--from 2026-10-14 --to 2026-10-14", "device perturb data.csv --task task.json --allowance own"
    here.lines(f"""
        publish data.csv --policy data.toml -o release
        estimate damaged.jsonl --task task.json -o damaged
        estimate reports.jsonl reports.jsonl --task task.json -o twice
        estimate nonsense.jsonl --task task.json -o nonsense
        estimate empty.jsonl --task task.json -o empty
        estimate reports.jsonl --task task.json --confidence 2 -o sure
        show nonsense.jsonl
        {perturb} --vehicle V0000001 {days} -o r.jsonl
        {perturb} --enrol --vehicle V0000001 {days} -o r.jsonl
        {perturb} --enrol --tier gold --vehicle V0000001 {days} -o r.jsonl
        {perturb} --enrol --tier basic {days} -o r.jsonl
        {perturb} --enrol --tier basic --vehicle V9 -o r.jsonl
        {perturb} --enrol --tier basic --vehicle V0000001 {days} -o r.txt
        device simulate data.csv --task task.json --place-columns lon -o r.jsonl
        device simulate data.csv --task task.json --vehicle-column truck -o r.jsonl
        device seal data.csv --keys none.keys -o sealed.jsonl
    """)
    here.leave_out("*", "*/*")


def test_carriers(tmp_path: Path, record: bool) -> None:
    check("refused-carriers", carriers, tmp_path, record=record)
