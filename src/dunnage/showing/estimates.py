# SPDX-License-Identifier: Apache-2.0
"""The page of estimates from devices: means and shares with their intervals, histograms, maps and paths; GeoJSON.

It needs only the release, so it is as public as the release. A cell whose interval contains 0 is hatched: so few
reports cannot tell it from an empty one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dunnage.model.certificate import Certificate
from dunnage.planning.exports import feature
from dunnage.release import Release
from dunnage.showing import figures as draw
from dunnage.text import number_text, percent

MAX_CELLS = 4_096  # of a map that is drawn cell by cell; larger maps are drawn in blocks
MAX_PATHS = 20
_HEIGHT, _BASE, _TOP = 340.0, 178.0, 30.0
Row = Mapping[str, Any]  # a line of the table of estimates


def estimates_page(release: Release) -> str:
    certificate, groups = release.certificate, _groups(release)
    paths = []
    for (purpose, quantity), rows in groups.items():
        if any(row.get("path") for row in rows):
            ranked = sorted(rows, key=lambda row: -(row["value"] or 0.0))[:MAX_PATHS]
            shares = (percent(max(0.0, row["value"] or 0.0)) for row in ranked)
            noise = ("still noise" if _is_noise(row) else "" for row in ranked)
            lines = zip((str(row["path"]) for row in ranked), shares, map(_between, ranked), noise, strict=True)
            paths.append((f"{purpose}: {quantity}", [list(line) for line in lines]))
    measures = certificate.estimates
    reports = {purpose: sum(tiers.values()) for purpose, tiers in measures.reports.items()}
    content = {
        "certificate": certificate,
        "title": f"Estimates of {certificate.dataset}" + (f", {certificate.period}" if certificate.period else ""),
        "figures": [draw.Figure(name, f"{num:,}", "reports") for name, num in sorted(reports.items())],
        "pictures": estimate_pictures(release),
        "paths": paths,
        "maps": sorted((measures.maps or {}).items()),
        "cautions": release.owner.cautions(release),
        "losses": release.owner.loss_words(certificate),
    }
    return draw.render("estimates.html", content)


def estimate_pictures(release: Release) -> list[draw.Picture]:
    """Draw everything but paths: intervals, distributions and maps."""
    pictures, groups = [], _groups(release)
    plain = [
        row
        for rows in groups.values()
        for row in rows
        if not _placed(rows) and row.get("bin_lower") is None and not row.get("path")
    ]
    if plain:
        pictures.append(_intervals_picture(plain, release.certificate))
    for (purpose, _), rows in groups.items():
        if rows[0].get("bin_lower") is not None:
            x = draw.Scale(rows[0]["bin_lower"], rows[-1]["bin_upper"])
            y = draw.Scale(0.0, 105 * max([0.01, *(row["upper"] for row in rows)]), _BASE, _TOP)
            stacks, whiskers = [], []
            for row in rows:
                low, high, share = row["bin_lower"], row["bin_upper"], max(0.0, row["value"] or 0.0)
                tip = f"{number_text(low)} to {number_text(high)}: {percent(share)} ({_between(row)})"
                stacks.append(draw.StackedColumn(low, high, [("bar", 100 * share)], tip))
                middle = x.at((low + high) / 2)
                whiskers += draw.joined(
                    [(middle, y.at(100 * max(0.0, row["lower"]))), (middle, y.at(100 * row["upper"]))], "axis"
                )
            name = rows[0].get("attribute") or purpose
            caption = f"Estimated shares of {name}; a line is the interval."
            below = draw.x_axis(x, _BASE, f"{name}")
            svg = draw.columns(x, y, stacks, y_title="per cent", below=below, more=whiskers, label=caption)
            pictures.append(draw.Picture(title=f"Distribution of {name}", svg=svg, caption=caption))
        elif _placed(rows):
            pictures.append(_map_picture(purpose, rows, _Cells.of(rows)))
    return pictures


def geojson(release: Release) -> str:
    """Write the cells of all maps as GeoJSON: one polygon each, with its share, interval and whether it is noise."""
    features = []
    for (purpose, quantity), rows in _groups(release).items():
        if not _placed(rows):
            continue
        cells = _Cells.of(rows)
        for row in rows:
            if row["lon"] is None:
                continue
            west, east = row["lon"] - cells.wide / 2, row["lon"] + cells.wide / 2
            south, north = row["lat"] - cells.high / 2, row["lat"] + cells.high / 2
            ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
            facts = {key: row[key] for key in ("cell", "value", "lower", "upper")}
            properties = {"purpose": purpose, "quantity": quantity, **facts, "still_noise": _is_noise(row)}
            places = [[[round(x, 7), round(y, 7)] for x, y in ring]]
            features.append(feature("Polygon", places, properties))
    return json.dumps({"type": "FeatureCollection", "features": features}) + "\n"


def has_maps(release: Release) -> bool:
    return any(_placed(rows) for rows in _groups(release).values())


def _groups(release: Release) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for line in release.data.to_pylist():
        groups.setdefault((line["purpose"], line["quantity"]), []).append(line)
    return groups


def _placed(rows: Sequence[Row]) -> bool:
    return any(row.get("lon") is not None for row in rows)


def _between(row: Row) -> str:
    return f"{percent(max(0.0, row['lower']))} to {percent(row['upper'])}"


def _is_noise(row: Row) -> bool:
    return bool(row["lower"] <= 0.0)


# Pictures


def _intervals_picture(rows: Sequence[Row], certificate: Certificate) -> draw.Picture:
    """Draw means and shares with their intervals, each across its domain."""
    domains = {item.name: item.domain or {} for item in certificate.attributes}
    lines, num_wide = [], 0
    for row in rows:
        domain = domains.get(row.get("attribute") or "", {})
        ends = (0.0, 1.0)
        if row["unit"] or row["quantity"] in ("mean", "quantile"):
            ends = float(str(domain.get("lower", row["lower"]))), float(str(domain.get("upper", row["upper"])))
        name = " ".join(str(part) for part in (row["quantity"], row.get("attribute") or row["purpose"]))
        unit = f" {row['unit']}" if row["unit"] else ""
        write = (lambda value: f"{number_text(value)}") if ends != (0.0, 1.0) else percent
        value = "no value" if row["value"] is None else f"{write(row['value'])}{unit}"
        words = f"{name}: {value} ({write(row['lower'])} to {write(row['upper'])}{unit})"
        if row["upper"] - row["lower"] > (ends[1] - ends[0]) / 2:
            words, num_wide = f"{words}, too wide to use", num_wide + 1
        lines.append(draw.IntervalRow(words, ends, row["lower"], row["upper"], row["value"]))
    level = percent(float(str(certificate.mechanism["confidence"])))
    caption = f"Each estimate across its public domain. An interval contains the true value with {level} confidence."
    if num_wide:
        caption += (
            f" {num_wide} of {len(rows)} cover more than half of the domain and say almost nothing: collect more "
            "reports, or use a larger epsilon."
        )
    legend = [("range", "interval"), ("first", "estimate")]
    return draw.Picture(title="Estimates", svg=draw.intervals(lines, label=caption), caption=caption, legend=legend)


class _Cells(NamedTuple):
    """The grid of a map: the middles of its columns and rows, and the size of a cell in degrees."""

    lons: list[float]  # from the west
    lats: list[float]  # from the north
    wide: float
    high: float
    num_noise: int

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Cells:
        inside = [row for row in rows if row["lon"] is not None]
        lons, lats = sorted({row["lon"] for row in inside}), sorted({row["lat"] for row in inside}, reverse=True)
        wide = float(np.median(np.diff(lons))) if len(lons) > 1 else 0.01
        high = float(np.median(-np.diff(lats))) if len(lats) > 1 else wide
        return cls(lons, lats, wide, high, sum(map(_is_noise, inside)))


def _map_picture(purpose: str, rows: Sequence[Row], cells: _Cells) -> draw.Picture:
    """Draw a heat map with coordinates; cells that are still noise are hatched."""
    inside = [row for row in rows if row["lon"] is not None]
    outside = sum(row["value"] or 0.0 for row in rows if row["lon"] is None)
    columns = {lon: place for place, lon in enumerate(cells.lons)}
    lines = {lat: place for place, lat in enumerate(cells.lats)}
    block = 1  # columns and rows that are drawn as one cell
    while len(columns) * len(lines) > MAX_CELLS * block * block:
        block *= 2
    shares = np.zeros((-(-len(lines) // block), -(-len(columns) // block)))
    at: dict[tuple[int, int], Row] = {}
    for row in inside:
        place = lines[row["lat"]] // block, columns[row["lon"]] // block
        shares[place] += max(0.0, row["value"] or 0.0)
        at[place] = row
    most, height = max(1e-12, float(shares.max())), _HEIGHT / len(shares)

    def tip(line: int, column: int) -> str:
        share, row = percent(float(shares[line, column])), at.get((line, column))
        where = f"{cells.lons[column * block]:.5g}, {cells.lats[line * block]:.5g}: {share}"
        if row is None or block > 1:
            return where
        return f"{where} ({_between(row)}){', still noise' if _is_noise(row) else ''}"

    def hatched(line: int, column: int, place: Mapping[str, float | str]) -> list[draw.Svg]:
        row = at.get((line, column))
        if row is None or block > 1 or not _is_noise(row):
            return []
        wide = 100 / shares.shape[1]
        across = {"x": f"{column * wide:.3f}%", "width": f"{wide:.3f}%"}
        return [draw.tag("rect", class_="still-noise", y=line * height, height=height, **across)]

    west, east = cells.lons[0] - cells.wide / 2, cells.lons[-1] + cells.wide / 2
    south, north = cells.lats[-1] - cells.high / 2, cells.lats[0] + cells.high / 2
    foot = {"y": _HEIGHT + 16}
    heads = [
        draw.tag("text", f"{west:.6g}", x="0%", text_anchor="start", **foot),
        draw.tag("text", "longitude", class_="name", x="50%", text_anchor="middle", **foot),
        draw.tag("text", f"{east:.6g}", x="100%", text_anchor="end", **foot),
    ]
    caption = (
        f"Estimated shares of {purpose}. North is up; latitudes {south:.6g} to {north:.6g}. "
        f"{percent(max(0.0, outside))} are outside the box or missing. {cells.num_noise:,} of {len(inside):,} cells "
        "are still noise: their interval contains 0."
    )
    legend = [("load", f"darkest colour: {percent(most)}")]
    if block == 1:
        legend.append(("still-noise", "still noise"))
    else:
        caption += f" Drawn in blocks of {block} by {block} cells, without hatching; the GeoJSON file has every cell."
    cells_of = (shares / most).tolist()
    wide = (east - west) * math.cos(math.radians((south + north) / 2)) > 1.5 * (north - south)
    kind = "flat" if wide else "flat upright"  # wide screens would stretch a box that is not wide
    svg = draw.heat_map(
        cells_of, tip=tip, text=hatched, heads=heads, height=height, room=24.0, label=caption, kind=kind
    )
    return draw.Picture(title=f"Map of {purpose}", svg=svg, caption=caption, legend=legend)
