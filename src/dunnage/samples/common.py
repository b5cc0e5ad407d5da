# SPDX-License-Identifier: Apache-2.0
"""What all generators of data share: names of files, cards and codes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dunnage.arrays import IntArray
from dunnage.errors import OutputError


def targets(out: str | os.PathLike[str], endings: tuple[str, ...], force: bool) -> list[Path]:
    """Name the files to write, the first as it was asked for; refuse to write over others."""
    path = Path(out)
    if path.suffix != ".csv":
        raise OutputError(f"{path} must end in .csv. Choose such a name.")
    files = [path.with_name(path.stem + ending) for ending in endings]
    for file in files:
        if file.exists() and not force:
            raise OutputError(f"{file} exists already. Choose another name, or replace it with --force.")
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a folder. Make it first.")
    return files


def texts(labels: Sequence[str], codes: IntArray) -> pa.Array:
    """Spell out codes."""
    return pa.array(labels, pa.string()).take(pa.array(codes))


def card_names(numbers: IntArray) -> pa.Array:
    """Name cards by their numbers, from 0."""
    text = pc.utf8_lpad(pa.array(numbers + 1).cast(pa.string()), 7, "0")
    return pc.binary_join_element_wise("C", text, "")
