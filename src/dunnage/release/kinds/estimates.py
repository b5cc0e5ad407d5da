# SPDX-License-Identifier: Apache-2.0
"""Releases of estimates: means, shares and paths from reports that vehicles perturbed before sending."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from dunnage.exact import decimal_text, exact
from dunnage.model.certificate import AttributeStatement, Certificate, TierLoss
from dunnage.release.kinds import Columns, Kind, fill, require
from dunnage.release.kinds.rows import MAX_LINES
from dunnage.text import number_text, percent

if TYPE_CHECKING:
    from dunnage.release import Release

COLUMN_TYPES: Mapping[str, pa.DataType] = {  # all that a table of estimates may have, in order
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
QUANTILES = (0.25, 0.5, 0.75)
SUM_TOLERANCE = 1e-6  # of shares, which add up to 1
OUTSIDE, OTHER = "outside", "other"  # in column path: outside the grid or missing; all paths that are not listed
NOISE_SHARE = 0.5  # estimates say first that a mean is noise if its interval covers a larger share of the range
MISSING_SHARE = 0.1  # estimates say first that readings are missing if that is so in a larger share of the slots
NOT_CHECKED = (
    "that devices of the task made the reports as scheduled, and that none was forged",
    "that values and intervals follow from the reports, which are not in the folder",
    "how many reports there were and were left out, and whether a report counted twice",
    "that domains, grids and tiers were chosen without looking at the data",
    "that no vehicle gave away more than its allowance, and what else was collected from it",
    "that the lists of what is in clear and of what is assumed are complete",
)


class EstimatesKind(Kind):
    table_words: ClassVar = {"data": "one line for each estimated value, with its interval"}
    unchecked: ClassVar = tuple((words,) for words in NOT_CHECKED)

    def tables(self, release: Release) -> dict[str, Columns]:
        return {"data": {name: COLUMN_TYPES[name] for name in COLUMN_TYPES if name in release.data.column_names}}

    def check_columns(self, release: Release) -> str:
        """Check that columns are some of those that estimates have; the verifier asks the task which."""
        fits = list(release.tables) == ["data"] and all(
            COLUMN_TYPES.get(item.name) == item.type for item in release.data.schema
        )
        require(fits, "data: the columns are not those of the certificate")
        return "tables and columns are those of estimates"

    def recount(self, release: Release) -> Iterator[str]:
        """Yield nothing: estimates follow from the task, which the verifier makes again."""
        yield from ()

    def column_words(self, name: str, release: Release, table: str = "data") -> str:
        level = _level(release.certificate)
        words = {
            "quantity": "what is estimated: mean, present (share of slots with a reading), share, quantile",
            "purpose": "purpose of the reports that it comes from",
            "attribute": "the measured number; empty for places and paths",
            "bin_lower": "lower end of the bin, in the unit of the number",
            "bin_upper": "upper end of the bin",
            "cell": "cell of the grid, by its quadtree code; the code after the last cell means outside or missing",
            "lon": "longitude of the middle of the cell, in degrees",
            "lat": "latitude of the middle of the cell, in degrees",
            "path": "path: its cells in order; outside: outside or missing; other: all paths that are not listed",
            "value": "the estimate; empty if no report has a value",
            "lower": f"lower end of the closed interval, which contains the true value with {level} confidence",
            "upper": f"upper end of the closed interval, which contains the true value with {level} confidence",
            "unit": "unit of value, lower and upper; empty for shares, which are parts of 1",
        }
        return words[name]

    def loss_words(self, certificate: Certificate) -> tuple[str, ...]:
        if certificate.basis == "void":
            return ()
        loss = certificate.estimates.loss
        return tuple(_tier_words(tier, item, loss.lifetime) for tier, item in sorted(loss.tiers.items()))

    def cautions(self, release: Release) -> tuple[str, ...]:
        """Say which means are noise, and where missing readings count as something else, or are many."""
        texts, lines = [], release.data.to_pylist()
        ranges = {
            (item.purpose, item.name): float(exact(str(item.domain["upper"])) - exact(str(item.domain["lower"])))
            for item in release.certificate.attributes
            if item.domain is not None and item.domain_kind == "numeric"
        }
        noise = [
            line["attribute"]
            for line in lines
            if line["quantity"] == "mean" and _width(line) > NOISE_SHARE * ranges[line["purpose"], line["attribute"]]
        ]
        if noise:
            texts.append(
                f"Mostly noise: {', '.join(noise)}. The interval of the mean covers over half of the public range, or "
                "would if the range did not cut it off. Do not use the value; collect more reports, report fewer "
                "numbers, or use a larger epsilon."
            )
        if filled := {item.name: words for item in release.certificate.attributes if (words := filled_words(item))}:
            values = ", ".join(f"{name} {words}" for name, words in filled.items())
            texts.append(
                f"A slot without a reading counts as the middle of the domain ({values}), and nobody can tell how many "
                "such slots there were: these are not means of readings unless nearly every slot has one. A policy "
                'with missing = "symbol" estimates the mean of the readings.'
            )
        many, unclear, wider = [], [], 1.0
        for line in lines:
            if line["quantity"] != "present" or line["value"] is None or 1 - line["value"] <= MISSING_SHARE:
                continue
            share, ends = percent(1 - line["value"]), f"{percent(1 - line['upper'])} to {percent(1 - line['lower'])}"
            if 1 - line["upper"] > MISSING_SHARE:
                many.append(f"{line['attribute']} in about {share} of them ({ends})")
                wider = max(wider, 1 / max(line["value"], 0.01))
            else:
                unclear.append(f"{line['attribute']} in {ends} of them")
        if many:
            times = number_text(float(f"{wider:.2g}"))
            texts.append(
                f"Many slots had no reading: {', '.join(many)}. The mean is that of the readings there are, and says "
                f"nothing about the other slots; its interval is about {times} times as wide because of them. If "
                "vehicles rest at some hours, state working hours in [schedule]; if readings are farther apart than "
                "slots, make slots longer."
            )
        placeless = [
            f"{line['purpose']} in about {percent(line['value'])} of them"
            for line in lines
            if line["quantity"] == "share"
            and line["lower"] > MISSING_SHARE
            and (line.get("path") == OUTSIDE or (line.get("cell") is not None and line["lon"] is None))
        ]
        if placeless:
            texts.append(
                f"Many slots had no place in the box: {', '.join(placeless)}. Shares are of all slots, so those of the "
                "places are small, and easily lost in the noise. If vehicles rest at some hours, state working hours "
                "in [schedule]; if they leave the box, make it larger."
            )
        if unclear:
            texts.append(
                f"Some slots may have had no reading, and there are too few reports to tell how many: "
                f"{', '.join(unclear)}. The mean is that of the readings there are."
            )
        return tuple(texts)

    def readme(self, release: Release, columns: str) -> str:
        certificate = release.certificate
        reports = sorted(certificate.estimates.reports.items())
        listed = "\n".join(f"- {purpose}: {tiers_words(tiers)}" for purpose, tiers in reports)
        tiers = {
            "auto": "Values weigh tiers by precision unless a test shows that they differ; intervals hold either way.",
            "precision": "Tiers are weighed by precision: right only if they are independent of what is reported.",
            "stratify": "Each tier weighs in proportion to its number of reports.",
        }[str(certificate.mechanism["combine"])]
        return fill(
            "estimates",
            listed=listed,
            level=_level(certificate),
            tiers=tiers,
            columns=columns,
            subjects=_subject_words(certificate),
        )

    def figures(self, release: Release) -> list[str]:
        measures = release.certificate.estimates
        lines = [f"Reports     {name}: {tiers_words(tiers)}" for name, tiers in sorted(measures.reports.items())]
        lines += [f"Map         {name}: {message}" for name, message in sorted((measures.maps or {}).items())]
        lines += [f"Loss        {words}" for words in self.loss_words(release.certificate)]
        if (shuffled := measures.shuffled) is not None:
            lines += [
                f"Shuffled    {name}, {tier}: one report {epsilon:g}, delta {shuffled.delta:g} ({shuffled.basis})"
                for name, tiers in sorted(shuffled.epsilon.items())
                for tier, epsilon in tiers.items()
            ]
            lines.append(f"Trust       {shuffled.trust}")
        filled = {
            item.name: f" (missing: {words})"
            for item in release.certificate.attributes
            if (words := filled_words(item))
        }
        groups: dict[tuple[str, str], list[Mapping[str, object]]] = {}
        for line in release.data.to_pylist():
            groups.setdefault((line["purpose"], line["quantity"]), []).append(line)
        for (purpose, quantity), rows in groups.items():
            many = len(rows) > MAX_LINES
            chosen = sorted(rows, key=lambda row: -float(str(row["value"] or 0.0)))[:MAX_LINES] if many else rows
            lines += ["", f"{purpose}: {quantity}" + (f", the largest {len(chosen)} of {len(rows):,}" if many else "")]
            lines += [_estimate_line(row, filled.get(str(row.get("attribute")), "")) for row in chosen]
        return lines

    def headline(self, certificate: Certificate, num_rows: int, num_left_out: int) -> list[str]:
        reports = sorted(certificate.estimates.reports.items())
        return [f"Reports   {purpose}: {tiers_words(tiers)}" for purpose, tiers in reports]


def _level(certificate: Certificate) -> str:
    return f"{100 * float(str(certificate.mechanism['confidence'])):g} %"


def _tier_words(tier: str, loss: TierLoss, lifetime: int | float | str | None) -> str:
    if loss.slot is None or loss.day is None:
        return f"What a vehicle of tier {tier} gives away has no bound, because it shows areas unchanged."
    each = ", ".join(f"{name} {decimal_text(exact(part or 0), up=True)}" for name, part in sorted(loss.reports.items()))
    whole = f"; {decimal_text(exact(lifetime))} in its lifetime, then it stops" if lifetime is not None else ""
    slot, day = (decimal_text(exact(part), up=True) for part in (loss.slot, loss.day))
    return f"A vehicle of tier {tier} gives away at most epsilon {slot} per slot ({each}), {day} per day{whole}."


def tiers_words(reports: Mapping[str, int]) -> str:
    return ", ".join(f"tier {tier} {num:,}" for tier, num in sorted(reports.items())) or "none, so no estimate"


def _subject_words(certificate: Certificate) -> str:
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
                f"- {item.name}: {side:,} columns by {side:,} rows; west, south, east, north are {', '.join(ends)}; "
                "the code of a cell alternates bits of the column and of the row, column first, coarsest first"
            )
    return "\n".join(lines)


def _width(line: Mapping[str, Any]) -> float:
    """Return the width of an interval: twice its longer side, because it ends where the range does."""
    value, lower, upper = line["value"], line["lower"], line["upper"]
    return float(upper - lower if value is None else 2 * max(upper - value, value - lower))


def filled_words(item: AttributeStatement) -> str:
    """Write what a missing reading of a number counts as; empty if it does not count, or for places."""
    domain = item.domain or {}
    if item.domain_kind != "numeric" or item.missing != "middle":
        return ""
    ends = [exact(str(domain[end])) for end in ("lower", "upper")]
    return f"{decimal_text((ends[0] + ends[1]) / 2)} {item.unit}".rstrip()


def _estimate_line(row: Mapping[str, object], filled: str = "") -> str:
    about = [f"{row[key]}{filled}" for key in ("attribute", "path") if row.get(key)]
    about += [f"{row['bin_lower']:g} to {row['bin_upper']:g}"] if row.get("bin_lower") is not None else []
    if row.get("cell") is not None:
        centre = f" ({row['lon']:.5g}, {row['lat']:.5g})" if row["lon"] is not None else ", outside or missing"
        about.append(f"cell {row['cell']}{centre}")
    value = "no value" if row["value"] is None else f"{row['value']:.5g}"
    return f"  {', '.join(about):<32} {value:>9}  {row['lower']:.5g} .. {row['upper']:.5g} {row['unit']}".rstrip()
