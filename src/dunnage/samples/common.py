# SPDX-License-Identifier: Apache-2.0
"""What all generators share: names of files and cards, and where people travel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import OutputError

MAX_ROWS = 50_000_000  # of generated data: all are in memory
_WINDOWS_DIFFER = 0.5
_RANK_OFFSET, _RANK_POWER = 2.0, 1.88  # the share of a cell in the trips of a window falls with its rank
_WALKED_KM, _FAR_KM = 1.5, 6.0


def targets(
    out: str | os.PathLike[str], endings: tuple[str, ...], force: bool, kinds: tuple[str, ...] = (".csv",)
) -> list[Path]:
    """Return the files to write, the first as requested; refuse to overwrite others without ``force``."""
    path = Path(out)
    if path.suffix not in kinds:
        raise OutputError(f"{path} must end in {' or '.join(kinds)}. Choose another name.")
    files = [path, *(path.with_name(path.stem + ending) for ending in endings)]
    for file in files:
        if file.exists() and not force:
            raise OutputError.taken(file)
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a folder. Create it first.")
    return files


def starter_policy(kind: str, **values: object) -> str:
    return resources.files("dunnage.samples").joinpath("starters", f"{kind}.toml").read_text("utf-8").format(**values)


def texts(labels: Sequence[str], codes: IntArray) -> pa.Array:
    return pa.array(labels, pa.string()).take(pa.array(codes))


def second_text(second: int) -> str:
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def card_names(numbers: IntArray) -> pa.Array:
    text = pc.utf8_lpad(pa.array(numbers + 1).cast(pa.string()), 7, "0")
    return pc.binary_join_element_wise("C", text, "")


def choose(weights: FloatArray, uniforms: FloatArray) -> IntArray:
    until = np.cumsum(weights)
    places = np.searchsorted(until, uniforms * until[-1], side="right")
    return np.asarray(np.minimum(places, len(weights) - 1), dtype=np.int64)


def deterrence(apart_km: FloatArray) -> FloatArray:
    """Return how much distance discourages trips: people walk short distances, and long ones are too far."""
    return np.asarray(apart_km / _FAR_KM + 3 * np.exp(-apart_km / _WALKED_KM))


def busiest(attraction: FloatArray, normals: FloatArray, num: int) -> tuple[IntArray, FloatArray]:
    """Choose ``num`` cells of a window, preferring attractive ones, and return their relative shares of trips."""
    order = np.argsort(-(attraction + _WINDOWS_DIFFER * normals), kind="stable")
    cells: IntArray = order[: min(num, int(np.isfinite(attraction).sum()))].astype(np.int64)
    return cells, np.asarray((np.arange(len(cells)) + _RANK_OFFSET) ** -_RANK_POWER)
