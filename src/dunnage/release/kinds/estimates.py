# SPDX-License-Identifier: Apache-2.0
"""Releases of estimates: means, shares and paths from reports that vehicles had perturbed before they sent them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from dunnage.exact import decimal_text, exact
from dunnage.model.certificate import Certificate, TierLoss
from dunnage.release.kinds import Columns, Kind
from dunnage.release.kinds.rows import MAX_LINES

if TYPE_CHECKING:
    from dunnage.release import Release

COLUMN_TYPES: Mapping[str, pa.DataType] = {
    "quantity": pa.string(),
    "purpose": pa.string(),
    "attribute": pa.string(),
    "bin_lower": pa.float64(),
    "bin_upper": pa.float64(),
    "cell": pa.int64(),
    "lon": pa.float64(),
    "lat": pa.float64(),
    "path": pa.string(),
    "value": pa.float64(),
    "lower": pa.float64(),
    "upper": pa.float64(),
    "unit": pa.string(),
}
"""All columns that a table of estimates may have, in order."""
NOT_CHECKED = (
    "that the reports were made by devices of the task, each vehicle's as scheduled, and that none was forged",
    "that values and intervals, at their confidence, are those that the reports give, which are not at hand",
    "how many reports there were and were left out, and whether one counted twice",
    "that domains, grids and tiers were chosen without looking at the data",
    "that no vehicle gave away more than its allowance, and what else was collected from it",
    "that what is said to be in clear and assumed is complete",
)


class EstimatesKind(Kind):
    """One long table of estimated values."""

    table_words: ClassVar = {"data": "one line an estimated value, with its interval"}

    def tables(self, release: Release) -> dict[str, Columns]:
        return {"data": {name: COLUMN_TYPES[name] for name in COLUMN_TYPES if name in release.data.column_names}}

    def recount(self, release: Release) -> Iterator[str]:
        """Nothing: what estimates follow from is the task, which the verifier asks."""
        yield from ()

    def not_checked(self, certificate: Certificate) -> tuple[str, ...]:
        return NOT_CHECKED

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        level = _level(release.certificate)
        words = {
            "quantity": "what is estimated: mean, present (share of vehicles that have a value), share, quantile",
            "purpose": "reporting duty that it comes from",
            "attribute": "number that it is about; empty for places and paths",
            "bin_lower": "lower end of the bin whose share it is, in the unit of the number",
            "bin_upper": "upper end of the bin whose share it is",
            "cell": "cell of the grid whose share it is, by its quadtree code; the one past the last: outside or "
            "missing",
            "lon": "longitude of the middle of the cell, in degrees",
            "lat": "latitude of the middle of the cell, in degrees",
            "path": "path whose share it is: its cells in order; outside: outside or missing; other: all not listed",
            "value": "the estimate; empty if no report told of it",
            "lower": f"lower end of the interval (closed) that holds the truth with {level}",
            "upper": f"upper end of the interval (closed) that holds the truth with {level}",
            "unit": "unit of value, lower and upper; empty for shares, which are parts of 1",
        }
        return words[name]

    def loss_words(self, certificate: Certificate) -> tuple[str, ...]:
        """Say what a vehicle of each tier gives away by a slot, a day and a lifetime of reports; nothing if void."""
        if certificate.basis == "void":
            return ()
        loss = certificate.estimates.loss
        return tuple(_tier_words(tier, told, loss.lifetime) for tier, told in sorted(loss.tiers.items()))

    def readme(self, release: Release, columns: str) -> str:
        certificate = release.certificate
        reports = sorted(certificate.estimates.reports.items())
        said = "\n".join(f"- {purpose}: {tiers_words(tiers)}" for purpose, tiers in reports)
        tiers = {
            "auto": "Values weigh tiers by precision unless these were found to differ; intervals hold either way.",
            "precision": "Tiers are weighed by precision: right only if they have nothing to do with what is reported.",
            "stratify": "Each tier weighs as much as it has reports.",
        }[str(certificate.mechanism["combine"])]
        return f"""
## What it is

Estimates from reports that vehicles had perturbed before they sent them:

{said}

Each interval holds the truth with {_level(certificate)} by itself, not all of them at once. It is of vehicles at random
moments, as many as reported, and clipped to the public domain. Shares are not negative and add up to 1;
where that moved one out of its interval, the interval was extended to it.
{tiers}

## Columns of `data`

{columns}

{_subject_words(certificate)}

## Read it

```python
import pandas as pd

data = pd.read_parquet("data.parquet")
means = data[data["quantity"] == "mean"]
shares = data[data["quantity"] == "share"]
```

Whatever is computed from these files alone keeps the promise.
"""

    def figures(self, release: Release) -> list[str]:
        """Describe estimates: from how many reports, at which loss, and the largest of them."""
        measures = release.certificate.estimates
        lines = [f"Reports     {name}: {tiers_words(tiers)}" for name, tiers in sorted(measures.reports.items())]
        lines += [f"Map         {name}: {message}" for name, message in sorted((measures.maps or {}).items())]
        lines += [f"Loss        {words}" for words in self.loss_words(release.certificate)]
        groups: dict[tuple[str, str], list[Mapping[str, object]]] = {}
        for line in release.data.to_pylist():
            groups.setdefault((line["purpose"], line["quantity"]), []).append(line)
        for (purpose, quantity), rows in groups.items():
            many = len(rows) > MAX_LINES
            largest = sorted(rows, key=lambda row: -float(str(row["value"] or 0.0)))
            chosen = largest[:MAX_LINES] if many else rows
            lines += ["", f"{purpose}: {quantity}" + (f", the largest {len(chosen)} of {len(rows):,}" if many else "")]
            lines += [_estimate_line(row) for row in chosen]
        return lines

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        reports = sorted(certificate.estimates.reports.items())
        return [f"Reports   {purpose}: {tiers_words(tiers)}" for purpose, tiers in reports]


def _level(certificate: Certificate) -> str:
    return f"{100 * float(str(certificate.mechanism['confidence'])):g} %"


def _tier_words(tier: str, told: TierLoss, lifetime: int | float | str | None) -> str:
    if told.slot is None or told.day is None:
        return f"A vehicle of tier {tier} gives away more than any bound, as it shows areas as they are."
    each = ", ".join(f"{name} {decimal_text(exact(part or 0))}" for name, part in sorted(told.reports.items()))
    whole = f"; {decimal_text(exact(lifetime))} in its lifetime, then it falls silent" if lifetime is not None else ""
    slot, day = decimal_text(exact(told.slot)), decimal_text(exact(told.day))
    return f"A vehicle of tier {tier} gives away at most epsilon {slot} a slot ({each}), {day} a day{whole}."


def tiers_words(reports: Mapping[str, int]) -> str:
    """Say how many reports came from each tier."""
    return ", ".join(f"tier {tier} {num:,}" for tier, num in sorted(reports.items())) or "none, so no estimate"


def _subject_words(certificate: Certificate) -> str:
    """Describe grids and numbers, from which cells and intervals are understood."""
    lines = []
    for item in certificate.attributes:
        domain = item.domain or {}
        if item.domain_kind == "numeric":
            missing = {"middle": "counts as the middle of it", "symbol": "is left out of the mean"}[str(item.missing)]
            unit = f" {item.unit}" if item.unit else ""
            ends = [decimal_text(exact(str(domain[end]))) for end in ("lower", "upper")]
            lines.append(f"- {item.name}: public domain {ends[0]} to {ends[1]}{unit}; a missing value {missing}")
        else:
            side, box = 2 ** (int(str(domain["levels"])) - 1), domain["box"]
            ends = [str(end) for end in box] if isinstance(box, list) else []
            lines.append(
                f"- {item.name}: {side:,} columns by {side:,} rows over west, south, east, north {', '.join(ends)}; "
                "the code of a cell has a bit of the column before a bit of the row, the coarsest first"
            )
    return "\n".join(lines)


def _estimate_line(row: Mapping[str, object]) -> str:
    about = [str(row[key]) for key in ("attribute", "path") if row.get(key)]
    about += [f"{row['bin_lower']:g} to {row['bin_upper']:g}"] if row.get("bin_lower") is not None else []
    if row.get("cell") is not None:
        centre = f" ({row['lon']:.5g}, {row['lat']:.5g})" if row["lon"] is not None else ", outside or missing"
        about.append(f"cell {row['cell']}{centre}")
    value = "not told" if row["value"] is None else f"{row['value']:.5g}"
    return f"  {', '.join(about):<32} {value:>9}  {row['lower']:.5g} .. {row['upper']:.5g} {row['unit']}".rstrip()
