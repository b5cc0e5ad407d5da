# SPDX-License-Identifier: Apache-2.0
"""Ours against other tools on public data, both in one run, our losses too: the tables of ``docs/peers.md``.

``make peers`` installs the peers in an environment of their own and runs ``python -m benchmarks.peers [PART ...]
[--write]``; ``docs/draw_pictures.py peers`` draws the picture of the page. Data are read where ``DUNNAGE_DATA`` points,
and none are stored here. Times are seconds of the processor.
"""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import sys
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

import dunnage as dn
from benchmarks import counts, dispatch, local, packing
from benchmarks.measuring import dataset, taken
from dunnage.arrays import FloatArray, IntArray
from dunnage.collecting.estimate import oracle_shares, project_shares
from dunnage.collecting.tally import BITS, SYMBOLS
from dunnage.devices.places import OptimisedUnary, best_oracle
from dunnage.kernels.bins.scalar import pack_bins
from dunnage.mechanisms.fitted_counts import FittedCounts
from dunnage.planning.dispatch import Dispatch, Requests, Service

PAGE = Path(__file__).resolve().parents[1] / "docs" / "peers.md"
HARD = tuple(f"HARD{number}" for number in range(5))
PACK_SECONDS, DRAWS = 20.0, 5
NEAR_SECONDS = 900.0  # of driving from the busiest stop: what one depot serves
TOOLS = ("ortools", "highspy", "anonypy", "pycanon", "opendp", "mbi", "multi-freq-ldpy", "pure-ldp", "ridepy")


class Against(NamedTuple):
    """One comparison. Less is better, unless ``more`` says otherwise."""

    what: str
    peer: str
    ours: float
    theirs: float
    unit: str
    more: bool = False

    @property
    def ratio(self) -> float:
        """How many times better ours is; below 1 where we lose."""
        high, low = (self.ours, self.theirs) if self.more else (self.theirs, self.ours)
        return 1.0 if high == low else high / low if low else float("inf")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


# Loads: five instances of Scholl's hard set, whose optima are known


def loads() -> list[Against]:
    optima = dict(line.split("\t")[:2] for line in (packing.DATA / "bpplib" / "optima.tsv").read_text().splitlines())
    known = sum(int(optima[name]) for name in HARD)
    instances = [packing.published(name) for name in HARD]
    pack_bins(np.array([1, 2, 3]), 4, seconds=1.0)
    ours = [taken(lambda case=case: pack_bins(np.array(case[0]), case[1], seconds=PACK_SECONDS)) for case in instances]
    bins, proved = sum(found.result.objective for found in ours), sum(found.result.gap == 0 for found in ours)
    seconds = sum(found.seconds for found in ours)
    rows = [Against(f"trucks for HARD0 to HARD4 (optimum {known})", "the optimum", bins, known, "trucks")]
    peers = {
        "CP-SAT, a variable for each item and bin": [packing.cp_sat(case, PACK_SECONDS) for case in instances],
        "HiGHS, column generation and integer columns": [columns(*case, PACK_SECONDS) for case in instances],
    }
    for name, found in peers.items():
        rows.append(Against("HARD0 to HARD4 proved optimal", name, proved, sum(o[0] for o in found), "of 5", more=True))
        rows.append(Against("HARD0 to HARD4, time", name, seconds, sum(o[1] for o in found), "CPU seconds"))
    return rows


def columns(weights: list[int], capacity: int, seconds: float) -> packing.Outcome:
    """Pack by Gilmore and Gomory: patterns priced by a knapsack, then the integer program over all patterns found."""
    import highspy

    start = time.process_time()
    sizes, demand = np.unique(weights, return_counts=True)
    patterns = [
        np.where(np.arange(len(sizes)) == at, min(need, capacity // size), 0)
        for at, (size, need) in enumerate(zip(sizes, demand, strict=True))
    ]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    for need in demand:
        solver.addRow(float(need), highspy.kHighsInf, 0, np.array([], dtype=np.int32), np.array([]))
    for pattern in patterns:
        _add(solver, pattern)
    bound = 0.0
    while time.process_time() - start < seconds:
        solver.run()
        duals = np.array(solver.getSolution().row_dual)
        pattern = knapsack(sizes, demand, duals, capacity)
        worth = float(pattern @ duals)
        bound = max(bound, solver.getInfo().objective_function_value / max(worth, 1.0))  # Farley's bound
        if worth < 1 + 1e-7:
            break
        _add(solver, pattern)
        patterns.append(pattern)
    every = np.arange(len(patterns), dtype=np.int32)
    solver.changeColsIntegrality(len(every), every, np.full(len(every), highspy.HighsVarType.kInteger))
    solver.setOptionValue("time_limit", solver.getRunTime() + max(seconds - (time.process_time() - start), 0.1))
    solver.run()
    best = solver.getInfo().objective_function_value
    return best <= np.ceil(bound - 1e-6) + 1e-6, time.process_time() - start


def _add(solver: Any, pattern: IntArray) -> None:
    held = np.flatnonzero(pattern).astype(np.int32)
    solver.addCol(1.0, 0.0, float("inf"), len(held), held, pattern[held].astype(float))


def knapsack(sizes: IntArray, demand: IntArray, worth: FloatArray, capacity: int) -> IntArray:
    """Return the most valuable pattern, each size at most as often as it occurs."""
    items, best, taking = np.repeat(np.arange(len(sizes)), demand), np.zeros(capacity + 1), []
    for item in items:
        size = int(sizes[item])
        more = best[:-size] + worth[item]
        takes = more > best[size:] + 1e-12
        best[size:] = np.where(takes, more, best[size:])
        taking.append(takes)
    pattern, room = np.zeros(len(sizes), dtype=np.int64), capacity
    for item, takes in zip(items[::-1], taking[::-1], strict=True):
        if room >= sizes[item] and takes[room - sizes[item]]:
            pattern[item] += 1
            room -= int(sizes[item])
    return pattern


# Taxi trips: classes of k, counts of trips, reports of riders


def taxis() -> pa.Table:
    table = pacsv.read_csv(packing.DATA / "nyc_taxis_seaborn" / "taxis.csv")
    return table.filter(pc.and_(pc.not_equal(table["pickup_zone"], ""), pc.not_equal(table["dropoff_zone"], "")))


def classes() -> list[Against]:
    """Compare the loss of fare, distance and minute: mean width of a class over the width of all, tight."""
    import anonypy
    import pandas as pd
    from pycanon import anonymity

    table, rows = taxis(), []
    columns = {
        "fare": table["fare"].to_numpy(),
        "distance": table["distance"].to_numpy(),
        "minute": _minutes(table).astype(float),
    }
    domains = {"fare": (0, 250), "distance": (0, 50), "minute": (0, 1440)}
    resolution = {"fare": 0.01, "distance": 0.01, "minute": 1}
    kinds = {
        name: {"kind": "numeric", "domain": list(domains[name]), "resolution": resolution[name]} for name in columns
    }
    wide = np.array([np.ptp(values) for values in columns.values()])
    everything, peer = pd.DataFrame(columns), "anonypy (Mondrian)"
    for k in (5, 20, 100):
        frame = everything.assign(payment=pd.Categorical(["x"] * len(everything)))
        parts, theirs = timed(lambda frame=frame, k=k: anonypy.Mondrian(frame, list(columns), "payment").partition(k))
        widths = [np.ptp(everything.loc[list(part)].to_numpy(), axis=0) / wide for part in parts]
        loss = float(sum(width.mean() * len(part) for width, part in zip(widths, parts, strict=True)) / len(frame))
        _check_k(anonymity, [len(part) for part in parts], k)
        for name in ("utility-clusters", "partition"):
            data = dataset(columns, kinds, name=name, k=k)
            dn.publish(data, ledger=":memory:")
            (release, _), ours = timed(lambda data=data: dn.publish(data, ledger=":memory:"))
            found = release.tables["classes"]
            size = found["size"].to_numpy()
            _check_k(anonymity, size, k)
            spans = [found[f"{each}_upper"].to_numpy() - found[f"{each}_lower"].to_numpy() for each in columns]
            lost = (np.array(spans) / wide[:, None]).mean(axis=0) @ size + len(frame) - size.sum()  # suppressed: 1
            what = f"{len(frame):,} taxi trips by fare, distance and minute, k = {k}, {name}"
            rows.append(Against(f"{what}: loss", peer, float(lost / len(frame)), loss, "share of the range"))
            rows.append(Against(f"{what}: time", peer, ours, theirs, "CPU seconds"))
    return rows


def _check_k(anonymity: Any, sizes: Any, k: int) -> None:
    """Let pycanon say which k a list of class sizes has."""
    import pandas as pd

    labels = pd.DataFrame({"class": np.repeat(np.arange(len(sizes)), sizes)})
    if anonymity.k_anonymity(labels, ["class"]) < k:
        raise RuntimeError(f"a class has fewer than {k} records")


def _minutes(table: pa.Table) -> IntArray:
    return pc.add(pc.multiply(pc.hour(table["pickup"]), 60), pc.minute(table["pickup"])).to_numpy()


def _zones(table: pa.Table, *names: str) -> tuple[int, list[IntArray]]:
    every = sorted({zone for name in ("pickup_zone", "dropoff_zone") for zone in table[name].to_pylist()})
    code = {zone: number for number, zone in enumerate(every)}
    return len(every), [np.array([code[zone] for zone in table[name].to_pylist()]) for name in names]


def trips() -> list[Against]:
    """Compare noisy counts of trips between zones in windows of four hours at epsilon 1."""
    import opendp.prelude as dp

    table = taxis()
    size, (origin, end) = _zones(table, "pickup_zone", "dropoff_zone")
    true = np.zeros((size, size, 6), dtype=np.int64)
    np.add.at(true, (origin, end, _minutes(table) // 240), 1)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    plain = dp.m.make_laplace(*space, scale=1.0)
    way = FittedCounts(epsilon=1, expected_trips=6_000)
    peers: dict[str, Callable[[], FloatArray]] = {
        "private-pgm": lambda: counts.private_pgm(true),
        "OpenDP, Laplace on each count": lambda: np.array(plain(true.reshape(-1).tolist())).reshape(true.shape),
    }
    counts.released(true, way)
    found, ours = timed(lambda: counts.released(true, way))
    rows = []
    for name, release in peers.items():
        theirs, seconds = timed(release)
        for what, axes in {"pair of zones": 2, "zone of pickup": (1, 2), "zone and window": 1}.items():
            errors = [counts.rmse((one - true).sum(axis=axes)) for one in (found, theirs)]
            rows.append(Against(f"{len(table):,} taxi trips, epsilon 1: error of a {what}", name, *errors, "trips"))
        rows.append(Against(f"{len(table):,} taxi trips, epsilon 1: time", name, ours, seconds, "CPU seconds"))
    return rows


def reports() -> list[Against]:
    """Compare shares of pickup zones from one report of each trip, as every library returns them."""
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    table, epsilon = taxis(), 2.0
    size, (zone,) = _zones(table, "pickup_zone")
    true = np.bincount(zone, minlength=size) / len(zone)

    def own(law: Any) -> FloatArray:
        tally = local.perturb_inputs(law, zone)
        counted = tally.counts((), BITS if law.counts_bits else SYMBOLS, law.num_counts)
        return project_shares(oracle_shares(law, counted, 0.95).value)  # as estimate releases them

    def multi() -> FloatArray:
        return np.asarray(UE_Aggregator_MI([UE_Client(int(at), size, epsilon, True) for at in zone], epsilon, True))

    def pure() -> FloatArray:
        client = UEClient(epsilon, size, use_oue=True, index_mapper=int)
        server = UEServer(epsilon, size, use_oue=True, index_mapper=int)
        for at in zone:
            server.aggregate(client.privatise(int(at)))
        return np.array([server.estimate(at, suppress_warnings=True) for at in range(size)]) / len(zone)

    measured = {}
    ways: dict[str, Callable[[], FloatArray]] = {
        "best": lambda: own(best_oracle(size, Fraction(2))),
        "unary": lambda: own(OptimisedUnary(epsilon=Fraction(2), num_inputs=size)),
        "multi-freq-ldpy": multi,
        "pure-ldp": pure,
    }
    for name, way in ways.items():
        way()
        runs = [timed(way) for _ in range(DRAWS)]
        measured[name] = counts.rmse(np.array([run[0] - true for run in runs])), min(run[1] for run in runs)
    rows = []
    for peer in ("multi-freq-ldpy", "pure-ldp"):
        what = f"{len(zone):,} riders report one of {size} zones at epsilon 2"
        rows.append(Against(f"{what}: error of a share", f"{peer}, unary", measured["best"][0], measured[peer][0], ""))
        rows.append(Against(f"{what}, unary too: error", f"{peer}, unary", measured["unary"][0], measured[peer][0], ""))
        seconds = measured["unary"][1], measured[peer][1]
        rows.append(Against(f"{what}, unary too: time", f"{peer}, unary", *seconds, "CPU seconds"))
    return rows


# Shuttles on the stops and times of a real timetable


def shuttles() -> list[Against]:
    """Send shuttles to departures from 8 to 10 near the busiest stop, each to a later stop of the same bus."""
    with zipfile.ZipFile(packing.DATA / "cairns_gtfs" / "cairns_gtfs.zip") as archive:
        stops, calls = (pacsv.read_csv(io.BytesIO(archive.read(f"{name}.txt"))) for name in ("stops", "stop_times"))
    calls = calls.filter(pc.greater(pc.utf8_length(pc.cast(calls["departure_time"], pa.string())), 0))  # with a time
    code = {stop: number for number, stop in enumerate(stops["stop_id"].to_pylist())}
    at = np.array([code[stop] for stop in calls["stop_id"].to_pylist()])
    clock = [str(text).split(":") for text in calls["departure_time"].to_pylist()]
    seconds = np.array([int(part[0]) * 3600 + int(part[1]) * 60 + int(part[2]) for part in clock])
    _, trip = np.unique(calls["trip_id"].to_numpy(zero_copy_only=False), return_inverse=True)
    order = np.lexsort((calls["stop_sequence"].to_numpy(), trip))
    at, seconds, trip = at[order], seconds[order], trip[order]
    last = np.searchsorted(trip, trip, side="right") - 1
    draw = np.random.default_rng(1)
    places = dispatch.in_seconds(stops["stop_lat"].to_numpy(), stops["stop_lon"].to_numpy())
    home = int(np.bincount(at, minlength=len(places)).argmax())
    near = (np.linalg.norm(places - places[home], axis=1) <= NEAR_SECONDS)[at]
    open_calls = np.flatnonzero((seconds >= 8 * 3600) & (seconds < 10 * 3600) & near & (last > np.arange(len(at))))
    begins = draw.permutation(open_calls)
    ends = draw.integers(begins + 1, last[begins] + 1)
    moving = near[ends] & (at[begins] != at[ends])
    begins, ends = begins[moving][:1_000], ends[moving][:1_000]
    begins, ends = (part[np.argsort(seconds[begins], kind="stable")] for part in (begins, ends))
    requests = Requests.single(np.zeros(len(begins), dtype=np.int64), at[begins], at[ends], seconds[begins])
    times = np.ceil(np.linalg.norm(places[:, None] - places[None], axis=2)).astype(np.int64)
    day = Dispatch(requests, times, [home], Service())
    fleet = dispatch.smallest(day, 800)
    found = taken(lambda: day.run(fleet), 5)
    spent, served, wait = dispatch.by_ridepy(requests, int(fleet[0]), home, places)
    what = f"{len(begins):,} requests near the centre of Cairns, {int(fleet[0])} shuttles"
    return [
        Against(f"{what}: riders served", "RidePy", 1.0, served, "share", more=True),
        Against(f"{what}: mean wait of those served", "RidePy", found.result.mean_wait, wait, "seconds"),
        Against(f"{what}: time", "RidePy", found.seconds, spent, "CPU seconds"),
    ]


PARTS = {
    "Loads": loads,
    "Classes of k": classes,
    "Counts of trips": trips,
    "Reports of riders": reports,
    "Shuttles": shuttles,
}


def lines(rows: list[Against]) -> list[str]:
    return [f"| {r.what} | {r.peer} | {r.ours:.4g} | {r.theirs:.4g} | {r.ratio:.3g} | {r.unit} |\n" for r in rows]


def write(made: dict[str, list[str]]) -> None:
    """Put the rows into their tables on the page, and when and with what they were measured."""
    text = PAGE.read_text(encoding="utf-8")
    where = f"{platform.machine()}, {os.cpu_count()} shared cores, Python {platform.python_version()}"
    tools = ", ".join(f"{tool} {version(tool)}" for tool in TOOLS)
    run = f"Measured on {datetime.now(UTC).date().isoformat()} ({where}): dunnage {dn.__version__}, {tools}.\n"
    text = re.sub(r"(?m)^Measured on .*\n", run, text)
    for part, rows in made.items():
        table = re.compile(rf"(?s)(\n## {part}\n.*?\|---\|\n)((?:\|[^\n]*\n)*)")
        text = table.sub(lambda found, rows=rows: found[1] + "".join(rows), text)
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {PAGE.name}")
    given = parser.parse_args()
    made = {}
    for part in given.parts or PARTS:
        try:
            made[part] = lines(PARTS[part]())
        except (ImportError, OSError) as error:  # a peer or the data are not here
            print(f"left out: {part} ({error})", file=sys.stderr)
            continue
        print("".join(made[part]), end="")
    if given.write:
        write(made)


if __name__ == "__main__":
    main()
