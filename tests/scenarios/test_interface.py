# SPDX-License-Identifier: Apache-2.0
"""What can be called: commands with their options and help, root names with their signatures, and Python runs."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel
from tests.scenarios.harness import Here, check
from tests.scenarios.inputs import EDGES, MODES, STOPS, parcel_policy, parcels, rides, rides_policy, trips, trips_policy

import dunnage as dn
from dunnage.cli import app
from dunnage.noise.sampling import sampling_delta, sampling_epsilon, smallest_k
from dunnage.publishing import foresee
from dunnage.samples.packages import PackageSetting, generate_packages, package_setting


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


def steady_text(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def signature(value: Any) -> str:
    try:
        return steady_text(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"


def kind_of(item: Any) -> str:
    """Return the type of an option as it is annotated."""
    kind = item.type_descriptor.annotation if hasattr(item, "type_descriptor") else item.type
    return getattr(kind, "__name__", str(kind)) if inspect.isclass(kind) else str(kind)


def interface(here: Here) -> None:
    for path, command in commands(typer.main.get_command(app)):
        lines = [f"command {' '.join(('dunnage', *path))}"]
        for item in command.params:
            names = "/".join([*item.opts, *item.secondary_opts])
            facts = [item.param_type_name, kind_of(item), f"default {item.default!r}"]
            facts += ["needed"] if item.required else []
            facts += ["many"] if getattr(item, "multiple", False) or item.nargs != 1 else []
            lines.append(f"  {names}: {', '.join(facts)}")
        here.say("\n".join(lines))
    for name in sorted(dn.__all__):
        here.say("\n".join(told_name(name, getattr(dn, name))))


def told_name(name: str, value: Any) -> list[str]:
    if not inspect.isclass(value):
        return [f"dn.{name}{signature(value) if callable(value) else f': {type(value).__name__}'}"]
    if issubclass(value, enum.Enum):
        return [f"enum dn.{name}: {', '.join(f'{item.name} = {item.value!r}' for item in value)}"]
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    lines = [f"class dn.{name}({bases}){signature(value)}"]
    if dataclasses.is_dataclass(value):
        lines += [f"  field {item.name}: {item.type}" for item in dataclasses.fields(value)]
    for key in sorted(set(dir(value)) - set(dir(object)) - set(dir(Exception)) - set(dir(BaseModel))):
        member = inspect.getattr_static(value, key)
        if key.startswith("_"):
            continue
        if isinstance(member, property):
            lines.append(f"  property {key}")
        elif callable(getattr(value, key)):
            lines.append(f"  {key}{signature(getattr(value, key))}")
    return lines


def test_interface(tmp_path: Path, record: bool) -> None:
    check("interface", interface, tmp_path, record=record)


def helping(here: Here) -> None:
    for path, _ in commands(typer.main.get_command(app)):
        here.run(*path, "--help")
    here.run("--version")
    here.run()
    here.run("device")


def test_help(tmp_path: Path, record: bool) -> None:
    check("help", helping, tmp_path, record=record)


def readme(here: Here) -> None:
    generate_packages(PackageSetting(size=40, destinations=2), "sample.csv", seed=1)
    data = dn.load("sample.csv", policy="sample.toml")
    here.say(repr(data))
    here.say(repr(data.policy) if hasattr(data, "policy") else "")
    here.say(dn.promise(dn.Policy.read("sample.toml")).to_dict())
    here.say(steady_text(dn.rehearse(data, ledger=dn.Ledger(":memory:"))))
    here.say(steady_text(foresee(data)))
    release, key = dn.publish(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=1))
    here.say(repr(release), len(release), repr(key))
    here.say(release.certificate.basis, sorted(release.certificate.plain()))
    plan = dn.pack(release, capacity=500)
    here.say(repr(plan))
    here.say(plan.summary())
    done = dn.apply(plan, data, release, key)
    here.say(repr(done))
    here.say(done.plan_feasible, done.summary())
    published = dn.publish(data, ledger=dn.Ledger("ledger.sqlite"), out="release")
    here.say(type(published).__name__)
    here.say(dn.verify("release").summary())
    here.say(repr(dn.Noise()), repr(dn.Noise(seed=2)), dn.Noise(seed=2).bits(64))
    here.say(package_setting("25-L-U"))
    here.say(sampling_delta(20, "0.5"))
    here.leave_out("sample.csv", "release/*", "release.key.parquet")


def attempt(here: Here, what: str, call: Any) -> None:
    """Tell what a call gives, or which error it raises."""
    try:
        here.say(what, "->", steady_text(call()))
    except Exception as error:
        here.say(what, "-> raises", type(error).__name__, error)


def mechanisms(here: Here) -> None:
    for name, text in (("data.csv", parcels()), ("rides.csv", rides()), ("trips.csv", trips()), ("edges.csv", EDGES),
                       ("stops.csv", STOPS), ("modes.csv", MODES)):  # fmt: skip
        here.write(name, text)
    cases: list[tuple[str, str, Any]] = [
        ("data.csv", parcel_policy("partition", k=5), dn.Partition(k=5, statistic="multiset")),
        ("data.csv", parcel_policy("full-domain", k=5), dn.FullDomain(k=5)),
        ("data.csv", parcel_policy("noisy-values", sensitive=False, epsilon=1), dn.NoisyValues(epsilon=1)),
        (
            "data.csv",
            parcel_policy("noisy-clusters", sensitive=False, epsilon=1, borders=[50]),
            dn.NoisyClusters(epsilon=1, borders=[50]),
        ),
        (
            "data.csv",
            parcel_policy("sampled-lattice", sensitive=False, k=3, beta=0.9, epsilon_choice=1),
            dn.SampledLattice(k=3, beta="0.9", epsilon_choice=1),
        ),
        ("rides.csv", rides_policy(k=4), dn.UtilityClusters(k=4)),
        ("trips.csv", trips_policy("noisy-counts", epsilon=1), dn.NoisyCounts(epsilon=1)),
        ("trips.csv", trips_policy("hierarchical-counts", epsilon=1), dn.HierarchicalCounts(epsilon=1)),
        ("trips.csv", trips_policy("constrained-counts", epsilon=1), dn.ConstrainedCounts(epsilon=1)),
    ]
    for number, (file, text, mechanism) in enumerate(cases):
        here.write(f"policy{number}.toml", text)
        data = dn.load(file, policy=f"policy{number}.toml")
        here.say(repr(mechanism))
        here.say(mechanism.promise(data.schema).to_dict())
        release, key = mechanism.release(data, ledger=dn.Ledger(":memory:"), noise=dn.Noise(seed=3))
        here.say(repr(release), repr(key))
        here.say(release.data.slice(0, 5).to_pylist())
    attempt(here, "Partition()", lambda: dn.Partition())
    attempt(here, "Partition(k=1)", lambda: dn.Partition(k=1))
    attempt(here, "NoisyValues(epsilon=-1)", lambda: dn.NoisyValues(epsilon=-1))
    attempt(here, "compose", lambda: dn.compose([dn.PureDP(epsilon=1, neighbours="add-remove", protects="trip")] * 2))
    attempt(here, "smallest_k", lambda: smallest_k("0.5", "1e-3"))
    attempt(here, "sampling_epsilon", lambda: sampling_epsilon("0.5"))
    attempt(here, "verify", lambda: dn.verify("nowhere"))
    attempt(here, "load", lambda: dn.load("nowhere.csv", policy="policy0.toml"))


def test_readme(tmp_path: Path, record: bool) -> None:
    check("python-readme", readme, tmp_path, record=record)


def test_mechanisms(tmp_path: Path, record: bool) -> None:
    check("python-mechanisms", mechanisms, tmp_path, record=record)
