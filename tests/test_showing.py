"""What a person reads of a release of rides: show, the README, what publish prints, and what it warns of."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import dunnage as dn
from dunnage.cli import _published_text
from dunnage.publishing import owner_warnings, rehearse
from dunnage.release import describe_release
from dunnage.showing import policy_text, release_text

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


def test_show_lists_nodes_and_sets(tmp_path: Path) -> None:
    release = publish(policy_of(tmp_path, k=10))
    shown = release_text(release)
    assert "type, board, the node or set of each class" in shown
    for line in release.classes.to_pylist():
        first = ", ".join(line["board"][:4])
        more = f", and {len(line['board']) - 4} more" if len(line["board"]) > 4 else ""
        assert f"type {line['type']}  board {{{first}{more}}}  {line['size']} records" in shown


def test_show_names_persons_and_sizes_of_domains(tmp_path: Path) -> None:
    shown = policy_text(policy_of(tmp_path, person=True))
    assert re.search(r"card +identifier +tells persons apart: k counts them", shown)
    assert "graph of 9 vertices" in shown
    assert "tree of 3 leaves" in shown
    assert "tells persons apart: k" not in policy_text(policy_of(tmp_path))


def test_persons_are_told_from_rows(tmp_path: Path) -> None:
    release = publish(policy_of(tmp_path, person=True, k=10))
    measures = release.certificate.body["measures"]
    rows = measures["class_size"]["smallest"]
    assert measures["persons"]["smallest"] == 10 < rows
    result = {**describe_release(release), "release": "r", "key": "k", "rows": 40, "owner": {"left_out": 0}}
    printed = _published_text({**result, "owner": {"left_out": 0, "warnings": []}})
    assert f", smallest {rows}, fewest persons 10, loss" in printed
    assert "k           10 asked, 10 reached, of persons" in release_text(release)
    plain = describe_release(publish(policy_of(tmp_path, k=10)))
    printed = _published_text({**result, **plain, "owner": {"left_out": 0, "warnings": []}})
    assert "persons" not in printed


def test_readme_reads_sets_and_asks_for_no_plan(tmp_path: Path) -> None:
    release = publish(policy_of(tmp_path, person=True), tmp_path / "release")
    readme = (tmp_path / "release" / "README.md").read_text()
    assert "Send a plan back" not in readme
    assert "of at least 3 different persons" in readme
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[1], names)
    text = pacsv.read_csv(tmp_path / "release" / "data.csv").column("board").to_pylist()
    assert [names["labels"](cell) for cell in text] == release.data.column("board").to_pylist()


# Undeclared persons


@pytest.mark.parametrize("role", ["public", "sensitive", "quasi-identifier"])
def test_a_column_like_a_pseudonym_is_warned_of(tmp_path: Path, role: str) -> None:
    rows = table(600, cards=120)
    policy = policy_of(tmp_path, card=role) if role != "quasi-identifier" else None
    if policy is None:
        document = dict(policy_of(tmp_path).document)
        cards = sorted(set(rows.column("card").to_pylist()))
        attributes = {**document["attributes"], "card": {"role": role, "kind": "category", "domain": cards}}
        policy = dn.Policy.from_dict({**document, "attributes": attributes}, path=tmp_path / "rides.toml")
    data = dn.load(rows, policy)
    (warning,) = owner_warnings(data)
    assert "'card' has" in warning
    assert "[contribution]" in warning
    assert "card-" not in warning
    if role != "public":  # of which most combinations are smaller than k
        assert rehearse(data, ledger=dn.Ledger(":memory:")).foresight.warnings == (warning,)


def test_few_labels_single_ones_and_declared_persons_are_not_warned_of(tmp_path: Path) -> None:
    assert owner_warnings(dn.load(table(600, cards=120), policy_of(tmp_path, person=True))) == ()
    assert owner_warnings(dn.load(table(600, cards=12), policy_of(tmp_path, card="sensitive"))) == ()
    single = table(600).set_column(0, "card", pa.array([f"card-{number}" for number in range(600)]))
    assert owner_warnings(dn.load(single, policy_of(tmp_path, card="sensitive"))) == ()
