"""What a person reads: show on every kind of file, the README, what publish prints, and what it warns of."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from tests.test_pages_frontier import frontier as frontier_of
from tests.test_pages_frontier import point as frontier_point

import dunnage as dn
from dunnage.cli.devices import device_keys, device_perturb, device_seal, device_simulate, device_task
from dunnage.errors import DunnageError
from dunnage.proving.verdict import Proof, Verdict
from dunnage.publishing import owner_warnings, rehearse
from dunnage.samples import (
    CitySetting,
    PackageSetting,
    TelemetrySetting,
    generate_city,
    generate_packages,
    generate_telemetry,
)
from dunnage.showing import policy_text, release_text, shown

STATIONS = ["Dover, east", "a{b}", "c\\d", *(f"S{number}" for number in range(6))]
PARENTS = {"Senior": "Not Adult", "Child": "Not Adult", "Adult": "Person", "Not Adult": "Person"}


def policy_of(folder: Path, *, person: bool = False, card: str = "identifier", **more: Any) -> dn.Policy:
    edges = "\n".join(f'"{a}","{b}"' for a, b in itertools.pairwise(STATIONS))
    (folder / "edges.csv").write_text(f"from,to\n{edges}\n")
    document = {
        "dataset": "rides",
        "protects": "ride",
        "attributes": {
            "card": {"role": card},
            "type": {"role": "quasi-identifier", "kind": "tree", "parents": PARENTS},
            "board": {"role": "quasi-identifier", "kind": "graph", "edges": "edges.csv"},
            "start": {"role": "quasi-identifier", "kind": "numeric", "domain": [0, 100], "unit": "min"},
        },
        "mechanism": {"name": "utility-clusters", "k": 3, **more},
        **({"contribution": {"person": "card"}} if person else {}),
    }
    return dn.Policy.from_dict(document, path=folder / "rides.toml")


def table(num: int = 40, cards: int = 10) -> pa.Table:
    draw = random.Random(2)
    return pa.table(
        {
            "card": [f"card-{draw.randrange(cards)}" for _ in range(num)],
            "type": [draw.choice(["Adult", "Senior", "Child"]) for _ in range(num)],
            "board": [draw.choice(STATIONS) for _ in range(num)],
            "start": [float(draw.randrange(101)) for _ in range(num)],
        }
    )


def publish(policy: dn.Policy, out: Path | None = None) -> dn.Release:
    return dn.publish(dn.load(table(), policy), ledger=dn.Ledger(":memory:"), out=out).release


def test_persons_nodes_and_sets_are_told(tmp_path: Path) -> None:
    release = publish(policy_of(tmp_path, k=10))
    shown = release_text(release)
    for line in release.classes.to_pylist():
        first = ", ".join(line["board"][:4])
        more = len(line["board"]) - 4
        row = next(text for text in shown.splitlines() if f"{{{first}" in text and f" {line['size']} " in text)
        assert line["type"] in row
        assert more <= 0 or f" {more} " in row
    with_person, without = (policy_text(policy_of(tmp_path, person=person)) for person in (True, False))
    lines = {name: next(line for line in with_person.splitlines() if f" {name} " in line) for name in ("type", "board")}
    assert ("3" in lines["type"], "9" in lines["board"]) == (True, True)  # leaves and vertices
    own, other = (next(line for line in text.splitlines() if " card " in line) for text in (with_person, without))
    assert own != other
    release = publish(policy_of(tmp_path, person=True, k=10))
    measures = release.certificate.rows
    assert measures.persons.smallest == 10 < measures.class_size.smallest
    printed = "\n".join(release.owner.headline(release.certificate, len(release), 0))
    assert {"10", str(measures.class_size.smallest)} <= set(re.findall(r"\d+", printed))
    plain = publish(policy_of(tmp_path, k=10))
    assert len(printed) > len("\n".join(plain.owner.headline(plain.certificate, len(plain), 0)))


def test_readme_reads_sets_and_asks_for_no_plan(tmp_path: Path) -> None:
    release = publish(policy_of(tmp_path, person=True), tmp_path / "release")
    readme = (tmp_path / "release" / "README.md").read_text()
    assert "row,bin" not in readme
    names: dict[str, Any] = {}
    (reading,) = (block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "def labels" in block)
    exec(reading, names)
    text = pacsv.read_csv(tmp_path / "release" / "data.csv").column("board").to_pylist()
    assert [names["labels"](cell) for cell in text] == release.data.column("board").to_pylist()


def test_a_column_like_a_pseudonym_is_warned_of(tmp_path: Path) -> None:
    rows = table(600, cards=120)
    document = dict(policy_of(tmp_path).document)
    cards = sorted(set(rows.column("card").to_pylist()))
    for role in ("public", "sensitive", "quasi-identifier"):
        card = {"role": role, **({"kind": "category", "domain": cards} if role == "quasi-identifier" else {})}
        attributes = {**document["attributes"], "card": card}
        data = dn.load(rows, dn.Policy.from_dict({**document, "attributes": attributes}, path=tmp_path / "rides.toml"))
        (warning,) = owner_warnings(data)
        assert "'card'" in warning
        assert "[contribution]" in warning
        assert "card-" not in warning
        if role != "public":  # of which most combinations are smaller than k
            assert rehearse(data, ledger=dn.Ledger(":memory:")).foresight.warnings == (warning,)
    # Few labels, single ones and declared persons are not warned of.
    single = table(600).set_column(0, "card", pa.array([f"card-{number}" for number in range(600)]))
    for own, policy in (
        (rows, policy_of(tmp_path, person=True)),
        (table(600, cards=12), policy_of(tmp_path, card="sensitive")),
        (single, policy_of(tmp_path, card="sensitive")),
    ):
        assert owner_warnings(dn.load(own, policy)) == ()


def write_loads(place: Path) -> None:
    """What the story of loads writes, from a generated file to a frontier."""
    data, policy = generate_packages(PackageSetting(size=40, destinations=2, decimals=1), place / "parcels.csv", seed=1)
    (place / "draft.toml").write_text(dn.draft(data))
    rows = dn.load(data, policy)
    release, key = dn.publish(rows, out=place / "release")
    plan = dn.pack(release, capacity=1000, seconds=1)
    plan.write(place / "plan")
    dn.apply(plan, rows, release, key).write(place / "settlement")
    dn.audit(release, rows).write(place / "audit")
    shutil.copy(place / "plan" / "assignment.csv", place / "rows.csv")
    (place / "trucks.csv").write_text("truck,count,cost,weight\nvan,3,1.5,500\nlorry,,2,1000\n")
    cheap = frontier_point(0, 0.1, 0.1, name="cheap")
    frontier_of(cheap, frontier_point(1, 0.2, 0.2, name="dear"), recommended="cheap").write(place / "frontier")


def write_fleets(place: Path) -> None:
    """A city, a feed as folder and zip, and somebody's plan of shuttles."""
    generate_city(CitySetting(stops=60, zones=2), place / "city", seed=1)
    (place / "shuttles.csv").write_text("zone,shuttles\neast,3\nwest,4\n")
    (place / "feed").mkdir()
    with zipfile.ZipFile(place / "feed.zip", "w") as archive:
        for name in ("stops.txt", "trips.txt", "stop_times.txt"):
            (place / "feed" / name).write_text("one,two\n1,2\n")
            archive.write(place / "feed" / name, name)


def write_devices(place: Path) -> None:
    """What devices and platform write."""
    fleet, policy = generate_telemetry(TelemetrySetting(size=8, readings=6), place / "fleet.csv", seed=1)
    task = place / "task.json"
    device_task(policy, task, devices=50)
    names = {"vehicle_column": "vehicle", "time_column": "time", "place_columns": "lon,lat"}
    for name, tally in (("reports.jsonl", False), ("reports.bin", False), ("tallies.json", True)):
        device_simulate(fleet, task, place / name, tally=tally, **names)
    own, day = place / "truck.own", "2026-10-14"
    vehicle = fleet.read_text().splitlines()[1].split(",")[0].strip('"')
    device_perturb(
        fleet, task, own, place / "own.jsonl", vehicle=vehicle, tier="basic", enrol=True, first=day, last=day, **names
    )
    (place / "ids.csv").write_text("vehicle,owner\nA,Ann\nB,Bob\n")
    device_keys(place / "fleet.keys")
    device_seal(place / "ids.csv", place / "fleet.keys", place / "sealed.jsonl")


def write_keys(place: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (place / "key.pem").write_bytes(private)
    (place / "key.pub.pem").write_bytes(public)


def write_proofs(place: Path) -> None:
    """What prove prints, and what a demo keeps of it and of other figures."""
    stated = {"basis": "claimed", "claimed": 1.0, "holds": "unbounded", "measured": "unbounded", "quantity": "epsilon"}
    how = {"exact": True, "confidence": None, "method": "looked up", "sentence": "Last digits tell the count."}
    verdict = Verdict(
        mechanism="noisy-counts",
        variant="floating-point Laplace",
        verdict="fails",
        expected="fails",
        seconds=0.5,
        **stated,
        **how,
    )
    proof = Proof(verdicts=(verdict,), seconds=0.5)
    worst = {"how": "all reports", "mechanism": "local-location", "claimed": 1, "measured": {"ours": 1.0, "none": None}}
    figure = {"value": 12, "how": "points of the frontier", "from": ["a.json"]}
    for name, content in {
        "proof.json": proof.to_dict(),
        "demo/loads/proof.json": {"format": 1, **worst},
        "demo/loads/figures.json": {"format": 1, "figures": {"policies measured": figure}},
        "demo/loads/utility.json": {"format": 1, "capacity": 500, "plans": {"mean": {"objective": 5, "optimum": 4}}},
    }.items():
        (place / name).write_text(json.dumps(content))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of every kind of file; never changed."""
    place = tmp_path_factory.mktemp("everything")
    write_loads(place)
    write_fleets(place)
    write_devices(place)
    write_keys(place)
    (place / "demo" / "loads").mkdir(parents=True)
    (place / "demo" / "report.html").write_text("")
    (place / "demo" / "numbers.csv").write_text("chapter,name,value,text,file,field\nloads,k,5,5,a.json,/k\n")
    write_proofs(place)
    (place / "begun").mkdir()
    (place / "begun" / "points.jsonl").write_text("")
    return place


SHOWN = "plan plan/plan.json settlement settlement/settlement.json audit city demo feed.zip parcels.toml fleet.toml"
SHOWN += " task.json tallies.json reports.jsonl reports.bin own.jsonl truck.own fleet.keys sealed.jsonl"
SAYS = {  # facts of those that no scenario records
    **dict.fromkeys(SHOWN.split(), ""),
    "release": "partition.md#guarantee",
    "release/certificate.json": "parcels",
    "release/datapackage.json": "weight_lower",
    "release/data.parquet": "dunnage show",
    "frontier": "* cheap",
    "feed": "stops.txt",
    "demo/numbers.csv": "loads",
    "demo/loads/figures.json": "12",
    "demo/loads/utility.json": "5 trucks, 4 ",
    "demo/loads/proof.json": "none",
    "proof.json": "noisy-counts  floating-point Laplace  claimed  epsilon 1  unbounded",
    "begun": "dunnage advise",
    "rows.csv": "40 rows",
    "shuttles.csv": "7 shuttles",
    "trucks.csv": "lorry",
    "parcels.csv": "destination              text\n  weight                   number",
    "ids.csv": "dunnage draft",
    "draft.toml": "attributes.weight.domain",
    "key.pub.pem": "SHA-256",
    "dunnage-ledger.sqlite": "parcels",
}
"""Every kind of file, and a fact that it is shown with."""


def test_everything_is_shown_but_values_and_what_is_sealed(everything: Path) -> None:
    for name, says in SAYS.items():
        content, text = shown(everything / name)
        assert says in text, name
        assert json.loads(json.dumps(content))
    for name in ("parcels.csv", "ids.csv", "sealed.jsonl", "fleet.keys", "truck.own"):
        content, text = shown(everything / name)
        told = text + json.dumps(content)
        secret = json.loads((everything / "fleet.keys").read_text())["keys"].popitem()[1]["key"]
        assert not [word for word in ("P0000", "Ann", "Bob", secret) if word in told]


def test_types_and_drafts_are_read_as_the_policy_says(tmp_path: Path, everything: Path) -> None:
    path = tmp_path / "pakete.csv"
    path.write_bytes("Größe;kg\nä;1,5\nö;2,25\n".encode("latin-1"))
    content, text = shown(path)
    assert content["columns"] == {"Größe": "text", "kg": "text"}
    (tmp_path / "pakete.toml").write_text('[read]\ndelimiter = ";"\ndecimal = ","\nencoding = "latin-1"\n')
    content, text = shown(path)
    assert content["columns"] == {"Größe": "text", "kg": "number"}
    assert "[read]" in text
    for strange in ("[read]\ndelimiter = 3", "[[[", 'read = "x"', '[read]\nencoding = "none"'):
        (tmp_path / "pakete.toml").write_text(strange)
        assert shown(path)[0]["columns"]["kg"] == "text"
    text = (everything / "draft.toml").read_text()
    (tmp_path / "draft.toml").write_text(text.replace("[attributes.weight]", "[attributes.weight]\nrol = 1"))
    content, told = shown(tmp_path / "draft.toml")
    assert content["kind"] == "draft"
    assert {item["key"] for item in content["blank"]} >= {"attributes.weight.role", "mechanism.k"}
    assert "rol" in told
    assert len(content["problems"]) == 1


REFUSED = ("none", "release.key.parquet", "renamed.parquet", "key.pem", "pipe", "page.html", "notes.md", "strange.xyz")
REFUSED += ("empty", "values.csv", "other.json", "empty.csv")


def test_what_is_refused_says_why(everything: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    shutil.copy(everything / "release.key.parquet", tmp_path / "renamed.parquet")
    for file, text in (("values.csv", "1,2.5\n3,4\n"), ("other.json", "{}"), ("empty.csv", "")):
        (tmp_path / file).write_text(text)
    for file in ("page.html", "notes.md", "strange.xyz"):
        (tmp_path / file).write_text("text")
    for name in REFUSED:
        place = everything if (everything / name).exists() else tmp_path
        with pytest.raises(DunnageError, match=re.escape(name)) as refused:
            shown(place / name)
        assert refused.value.exit_code == 2
        assert "PRIVATE KEY" not in str(refused.value)


def bent(content: bytes, draw: random.Random) -> bytes:
    """Damage the content of a file in one of many ways."""
    middle = draw.randrange(len(content) + 1)
    put = draw.choice([b"null", b"1e999", b"-1", b"[]", b"{}", b"NaN", b"\0", b"\xff", b"9" * 5000, b'"'])
    ways = [
        b"",
        content[:middle],
        content[:middle] + put + content[middle + draw.randrange(20) :],
        bytes(byte ^ (1 << draw.randrange(8)) if draw.random() < 3 / (len(content) + 1) else byte for byte in content),
        draw.choice([b"[" * 50_000, b'{"a":' * 50_000, b"[[1]]", b"null", b"{}", draw.randbytes(300)]),
        content + content,
    ]
    return draw.choice(ways)


def bent_document(content: bytes, draw: random.Random) -> bytes:
    """Put something else in the place of one value of a JSON document."""
    document = json.loads(content)
    places = [document]
    for place in places:
        items = place.values() if isinstance(place, dict) else place
        places += [item for item in items if isinstance(item, dict | list) and item]
    chosen = draw.choice(places)
    key = draw.choice(list(chosen) if isinstance(chosen, dict) else range(len(chosen)))
    chosen[key] = draw.choice([None, True, -1, 1e308, float("nan"), "x", [], {}, [1], {"a": 1}, 10**400, "\x1b[2J"])
    return json.dumps(document).encode()


def test_no_file_makes_show_crash(everything: Path, tmp_path: Path) -> None:
    draw = random.Random(7)
    outcomes = {"shown": 0, "refused": 0}
    for round_ in range(250):
        name = draw.choice([*SAYS, "release.key.parquet", "key.pem"]).split("/")[0]
        target = tmp_path / f"{round_}" / name
        target.parent.mkdir()
        if (everything / name).is_dir():
            shutil.copytree(everything / name, target)
        else:
            shutil.copy(everything / name, target)
        files = [file for file in ([*target.rglob("*")] if target.is_dir() else [target]) if file.is_file()]
        file = draw.choice(files)
        is_document = file.suffix == ".json" and draw.random() < 0.7
        file.write_bytes((bent_document if is_document else bent)(file.read_bytes(), draw))
        try:
            content, text = shown(target)
            assert json.dumps(content)
            assert isinstance(text, str)
            outcomes["shown"] += 1
        except DunnageError:
            outcomes["refused"] += 1
        shutil.rmtree(target.parent)
    assert min(outcomes.values()) > 25, outcomes
