# SPDX-License-Identifier: Apache-2.0
"""Loads: every planner, plans applied to the truth, audits, signatures, advice, proofs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from tests.scenarios.harness import Here, check
from tests.scenarios.inputs import parcel_policy, parcels

PACKS = {
    "standard": """
        pack release --capacity 200kg -o plan
        pack release --capacity 200kg --statistic mean -o mean --json
        pack release --capacity 200kg --by destination --margin 0.05 -o apart
        pack release --trucks trucks.csv --by destination -o trucks
        pack release --capacity 200kg --apart content -o content
        pack release --capacity 200kg --spread 3 -o spread
        show plan
        show plan --json
        show apart
        show trucks
        show trucks.csv
        pack release --capacity 10kg -o never
    """,
    "robust": """
        pack release --capacity 200kg --model robust -o plan
        pack release --capacity 200kg --model robust --budget items -o items
        pack release --capacity 200kg --model robust --budget published --risk 0.01 -o published --json
        show plan
    """,
    "stochastic": """
        pack release --capacity 300kg --model stochastic --risk 0.05 --by destination -o plan
        pack release --capacity 300kg --risk 0 --by destination -o sure --json
        show plan
    """,
    "sealed": """
        pack release --capacity 200kg --model sealed --by destination -o plan
        pack release --capacity 200kg --model sealed --by destination --spread 2 -o spread --json
        show plan
        show plan --json
    """,
}
APPLY = """
    apply plan data.csv --policy policy.toml --release release -o settlement
    apply plan data.csv --policy policy.toml --release release --repair -o repaired --json
    show settlement
    show settlement --json
"""


def publish(here: Here, *, seed: int = 5) -> None:
    here.write("data.csv", parcels())
    here.write("policy.toml", parcel_policy("partition", k=5, statistic="multiset"))
    here.write("trucks.csv", "truck,count,cost,weight\nsmall,20,1,120\nlarge,20,1.8,300\n")
    here.line(f"publish data.csv --policy policy.toml -o release --seed {seed}", quiet=True)
    here.leave_out("release/*", "release.key.parquet", "dunnage-ledger.sqlite")


@pytest.mark.parametrize("model", PACKS)
def test_packing(model: str, tmp_path: Path, record: bool) -> None:
    def scenario(here: Here) -> None:
        publish(here)
        here.lines(PACKS[model])
        here.lines(APPLY)

    check(f"pack-{model}", scenario, tmp_path, record=record)


def noisy(here: Here) -> None:
    here.write("data.csv", parcels(24))
    here.write("policy.toml", parcel_policy("noisy-values", sensitive=False, epsilon=8, law="piecewise"))
    here.lines("""
        publish data.csv --policy policy.toml -o release --seed 5
        pack release --capacity 300kg --by destination -o plan
        pack release --capacity 300kg --by destination --risk 0.1 --prior uniform -o stochastic
        pack release --capacity 300kg --by destination --risk 0.1 --prior normal:50:20 --time-limit 20 -o normal
        pack release --capacity 300kg --model robust -o never
        pack release --capacity 300kg --model sealed -o never
        pack release --capacity 300kg --statistic mean -o mean
        show plan
        show stochastic --json
        apply stochastic data.csv --policy policy.toml --release release --repair -o settlement
        audit release data.csv --policy policy.toml --plan plan -o audit
        show audit
    """)
    here.leave_out("release/*")


def test_noisy_loads(tmp_path: Path, record: bool) -> None:
    check("pack-noisy", noisy, tmp_path, record=record)


def applying(here: Here) -> None:
    publish(here)
    rows = "".join(f"{row},{row % 10}\n" for row in range(40))
    here.write("mine.csv", "row,bin\n" + rows)
    here.write("short.csv", "row,bin\n0,1\n1,1\n")
    here.write("odd.csv", "row,bin\n0,1\n0,2\n99,x\n")
    common = "data.csv --policy policy.toml --release release"
    here.lines(f"""
        show mine.csv
        apply mine.csv {common} -o bare
        apply mine.csv {common} --capacity 200kg -o loaded
        apply mine.csv {common} --trucks trucks.csv -o trucks
        apply short.csv {common} --capacity 200kg -o short
        apply odd.csv {common} --capacity 200kg -o odd
        apply mine.csv {common} --capacity 200kg -o loaded
        apply mine.csv {common} --capacity 200kg --key none.parquet -o other
        show loaded
        show release.key.parquet
        show data.csv
    """)
    # How far a hard repair gets depends on the time it has: tell only that it can be done.
    here.line(f"apply mine.csv {common} --capacity 200kg --repair -o repaired", quiet=True)
    here.line(f"apply mine.csv {common} --capacity 150kg --repair --leave-behind -o behind --json", quiet=True)
    here.line("show repaired", quiet=True)
    here.line("show behind --json", quiet=True)
    here.leave_out("repaired/*", "behind/*")


def test_applying(tmp_path: Path, record: bool) -> None:
    check("apply", applying, tmp_path, record=record)


def auditing(here: Here) -> None:
    publish(here)
    here.write("people.csv", parcels(80))
    here.write("other.toml", parcel_policy("partition", k=4))
    common = "data.csv --policy policy.toml"
    here.lines(f"""
        publish data.csv --policy other.toml -o other --seed 6 --ledger other.sqlite
        pack release --capacity 200kg -o plan
        pack release --capacity 200kg --model sealed --by destination -o sealed
        audit release {common} -o audit
        audit release {common} --plan plan --known-within 0.05 --approved-by "Ann Example, owner" -o planned
        audit release {common} --plan sealed -o sealed-audit --json
        audit release {common} --population people.csv -o population
        audit release {common} --also other --also-policy other.toml -o together
        audit release --external --plan plan -o external
        audit release {common} --external -o never
        audit release -o never
        audit release {common} -o audit
        show audit
        show planned
        show planned --json
        show external
        show together
    """)
    here.leave_out("other/*", "other.key.parquet", "plan/*", "sealed/*", "other.sqlite")


def test_auditing(tmp_path: Path, record: bool) -> None:
    check("audit", auditing, tmp_path, record=record)


def signing(here: Here) -> None:
    here.write("data.csv", parcels(20))
    here.write("policy.toml", parcel_policy("partition", k=4))
    for number, name in enumerate(("mine", "other")):
        key = Ed25519PrivateKey.from_private_bytes(bytes([number + 1]) * 32)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        here.write(f"{name}.pem", private.decode())
        (here.folder / f"{name}.pem").chmod(0o600)
        here.write(f"{name}.pub.pem", public.decode())
    here.lines("""
        publish data.csv --policy policy.toml --sign mine.pem -o release
        verify release
        verify release --signed-by mine.pub.pem
        verify release --signed-by mine.pub.pem --json
        verify release --signed-by other.pub.pem
        verify release --signed-by mine.pem
        verify release --signed-by none.pem
        show mine.pub.pem
        show mine.pem
        show release/certificate.json
        show release/datapackage.json
        publish data.csv --policy policy.toml --sign mine.pub.pem --again -o second
        publish data.csv --policy policy.toml -o unsigned --again
        verify unsigned --signed-by mine.pub.pem
    """)
    here.leave_out("release/*", "release/*.sig", "unsigned/*", "*.key.parquet")


def test_signing(tmp_path: Path, record: bool) -> None:
    check("sign", signing, tmp_path, record=record)


def together(here: Here) -> None:
    here.write(
        "data.csv",
        "parcel,consignment,volume,weight\n"
        + "".join(f"P{i},G{i // 2},{1 + i % 4}.5,{10 + i * 7 % 31}\n" for i in range(40)),
    )
    here.write(
        "policy.toml",
        """dataset = "parcels"
protects = "consignment"
together = "consignment"
small = "suppress"
[read]
delimiter = ","
[attributes.parcel]
role = "identifier"
[attributes.consignment]
role = "identifier"
[attributes.volume]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 20]
resolution = 0.5
unit = "m3"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
unit = "kg"
outside = "clamp"
[mechanism]
name = "partition"
k = 3
[mechanism.importance]
weight = 2
""",
    )
    here.lines("""
        show policy.toml
        publish data.csv --policy policy.toml -o release --seed 2
        verify release
        pack release --capacity weight=200 --capacity volume=30 -o plan
        apply plan data.csv --policy policy.toml --release release --repair -o settlement
        audit release data.csv --policy policy.toml --plan plan -o audit
    """)


def test_together(tmp_path: Path, record: bool) -> None:
    check("together", together, tmp_path, record=record)
