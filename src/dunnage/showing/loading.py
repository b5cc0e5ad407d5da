# SPDX-License-Identifier: Apache-2.0
"""The owner's sheets for the dock: one printed page or more for each truck, and one for what is in no truck."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dunnage.settle import Settlement
from dunnage.showing.figures import render
from dunnage.text import number_text, several

_BOX = "\N{BALLOT BOX}"


def loading_page(settlement: Settlement) -> str:
    """Write the page of a loading list; private, because it shows true packages."""
    loading = settlement.loading
    names = [name for name in loading.column_names if name not in ("row", "bin", "source_row")]
    columns, titles = [*names, "source_row"], [*names, "Row in the file"]  # the first heads a line on narrow screens
    lines, rows = _lines(loading, columns), loading.column("row").to_numpy()
    bins = loading.column("bin").to_numpy()
    over = settlement.final_loads > settlement.final_capacities
    sheets = []
    for number, truck in enumerate(settlement.truck_of_bin):
        places = np.flatnonzero(bins == number)
        own = [(*lines[place], _BOX) for place in places.tolist()]
        loads = zip(
            settlement.quantities.items(),
            settlement.final_loads[number].tolist(),
            settlement.final_capacities[number].tolist(),
            strict=True,
        )
        filled = "; ".join(
            f"{name} {number_text(load)} of {number_text(room)} {unit}".rstrip() for (name, unit), load, room in loads
        )
        packages = several(len(np.unique(rows[places])), settlement.protects)  # one may have several lines
        heading = f"Truck {number}" + (f": {truck}" if len(settlement.plan.trucks) > 1 else "")
        sheets.append((heading, packages, filled, bool(over[number].any()), own))
    outside = settlement.unplanned_rows
    known = [(title, name) for title, name in zip(titles, columns, strict=True) if name in outside.column_names]
    return render(
        "loading.html",
        {
            "unit": settlement.protects,
            "title": "Loading list",
            "columns": [*titles, "Loaded"],
            "sheets": sheets,
            "outside_columns": [*(title for title, _ in known), *outside.column_names[1:3]],
            "outside": _lines(outside, [*(name for _, name in known), *outside.column_names[1:3]]),
        },
    )


def _lines(table: pa.Table, columns: Sequence[str]) -> list[tuple[str, ...]]:
    cells = [["" if cell is None else str(cell) for cell in table.column(name).to_pylist()] for name in columns]
    return list(zip(*cells, strict=True))
