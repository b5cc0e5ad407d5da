# SPDX-License-Identifier: Apache-2.0
"""A map of a city: zones, stops, hubs and the largest flows of trips, from coordinates alone.

North is up. Nothing is fetched: there is no background.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.city import EARTH_KM, City
from dunnage.planning.exports import convex_hull
from dunnage.svg import Svg, tag
from dunnage.text import number_text

WIDTH, MOST_HEIGHT, LEAST_HEIGHT, ROOM, FOOT = 460.0, 480.0, 150.0, 22.0, 30.0
"""In pixels, at its own size; it is shown as wide as there is room."""
MOST_FLOWS = 80
THINNEST, THICKEST = 0.7, 8.0
HUB, LETTER, NAME_HIGH = 6.5, 9.6, 16.0
"""Half of a hub's mark; how wide a letter and how high a zone's name is, about."""
ZONE_STYLES = 6
"""Colours of zones; where there are more zones, colours come again. Names are written besides."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Flows:
    """Trips between pairs of stops on an average day, both ways together. Shapes: pairs, the largest first."""

    ends: IntArray  # The two stops of each pair, by number. Shape: (pairs, 2)
    trips: FloatArray  # Trips of each pair

    @classmethod
    def of(cls, origin: IntArray, destination: IntArray, trips: FloatArray, num_stops: int) -> Flows:
        """Add up trips both ways; those that end where they begin are left out."""
        apart = origin != destination
        low, high = np.minimum(origin, destination)[apart], np.maximum(origin, destination)[apart]
        pairs, place = np.unique(low * num_stops + high, return_inverse=True)
        sums = np.bincount(place.reshape(-1), weights=trips[apart], minlength=len(pairs)).astype(np.float64)
        order = np.argsort(-sums, kind="stable")
        return cls(ends=np.stack(np.divmod(pairs[order], num_stops), axis=1), trips=sums[order])

    @property
    def most(self) -> float:
        """Trips of the largest pair; 0 without any."""
        return float(self.trips[0]) if len(self.trips) else 0.0

    @property
    def shown(self) -> int:
        """Pairs that a map draws."""
        return min(MOST_FLOWS, len(self.trips))

    @property
    def shown_share(self) -> float:
        """Share of the trips between stops that a map draws."""
        total = float(self.trips.sum())
        return float(self.trips[: self.shown].sum()) / total if total else 1.0


@dataclass(frozen=True, eq=False)
class CityMap:
    """Where stops of a city are drawn. The city has coordinates."""

    city: City

    @cached_property
    def _kilometres(self) -> FloatArray:
        """East and south of each stop, from the north-west corner. Shape: (stops, 2)."""
        lat, lon = np.asarray(self.city.lat, dtype=float), np.asarray(self.city.lon, dtype=float)
        if np.ptp(lon) > 180:  # around the date line
            lon = np.where(lon < 0, lon + 360, lon)
        shrink = math.cos(math.radians(float(np.median(lat))))
        degree = EARTH_KM * math.pi / 180
        return np.column_stack([(lon - lon.min()) * shrink, lat.max() - lat]) * degree

    @cached_property
    def _pixels_a_kilometre(self) -> float:
        wide, high = np.ptp(self._kilometres, axis=0).tolist()
        fits = [room / size for room, size in ((WIDTH - 2 * ROOM, wide), (MOST_HEIGHT - 2 * ROOM, high)) if size > 0]
        return min(fits, default=1.0)

    @cached_property
    def places(self) -> FloatArray:
        """Across and down of each stop, in pixels. Shape: (stops, 2)."""
        drawn = self._kilometres * self._pixels_a_kilometre
        wide, high = np.ptp(drawn, axis=0).tolist()
        corner = np.array([(WIDTH - wide) / 2, (self.height - FOOT - high) / 2])
        return np.asarray(drawn + corner)

    @cached_property
    def height(self) -> float:
        """Its height in pixels, with the scale below."""
        high = float(np.ptp(self._kilometres[:, 1])) * self._pixels_a_kilometre
        return max(LEAST_HEIGHT, high + 2 * ROOM) + FOOT

    def drawn(self, flows: Flows, *, most: float, style: str, label: str) -> Svg:
        parts = [*self._zones(), *self._flows(flows, most, style), *self._stops(), *self._names(), *self._scale()]
        size = f"0 0 {WIDTH:.0f} {self.height:.0f}"
        return tag("svg", *parts, class_="chart map", viewBox=size, role="img", aria_label=label)

    def _members(self) -> list[tuple[int, str, IntArray]]:
        if self.city.zones is None:
            return []
        found = [
            (zone, name, np.flatnonzero(self.city.zones == zone)) for zone, name in enumerate(self.city.zone_names)
        ]
        return [(zone, name, stops) for zone, name, stops in found if len(stops)]

    def _zones(self) -> list[Svg]:
        parts = []
        for zone, name, stops in self._members():
            ring = convex_hull(self.places[stops].tolist())
            line = "L".join(f"{x:.1f} {y:.1f}" for x, y in (ring if len(ring) > 1 else ring * 2))
            style = f"zone zone-{zone % ZONE_STYLES}"
            parts.append(tag("path", tag("title", name), class_=style, d=f"M{line}Z"))
        return parts

    def _flows(self, flows: Flows, most: float, style: str) -> list[Svg]:
        parts = []
        for (start, end), trips in zip(flows.ends[: flows.shown].tolist(), flows.trips.tolist(), strict=False):
            (x1, y1), (x2, y2) = self.places[start].tolist(), self.places[end].tolist()
            tip = f"{self.city.stops[start]} and {self.city.stops[end]}: {number_text(round(trips, 1))} trips a day"
            width = max(THINNEST, THICKEST * math.sqrt(trips / most))
            place: dict[str, float | str] = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke_width": width}
            parts.append(tag("line", tag("title", tip), class_=f"flow {style}", **place))
        return parts[::-1]  # the largest on top

    def _stops(self) -> list[Svg]:
        num = len(self.city.stops)
        hubs = np.zeros(num, dtype=bool) if self.city.hubs is None else self.city.hubs
        zones = np.zeros(num, dtype=np.int64) if self.city.zones is None else self.city.zones
        radius = 2.6 if num <= 300 else 1.6
        parts = []
        for stop in sorted(range(num), key=lambda stop: bool(hubs[stop])):
            x, y = self.places[stop].tolist()
            tip = tag("title", f"{self.city.stops[stop]}{', a hub' if hubs[stop] else ''}")
            if hubs[stop]:
                diamond = f"M{x:.1f} {y - HUB:.1f}l{HUB} {HUB}l-{HUB} {HUB}l-{HUB} -{HUB}Z"
                parts.append(tag("path", tip, class_="hub", d=diamond))
            else:
                parts.append(tag("circle", tip, class_=f"stop zone-{zones[stop] % ZONE_STYLES}", cx=x, cy=y, r=radius))
        return parts

    def _names(self) -> list[Svg]:
        """Write each zone's name in its middle, or as near as it hides neither a hub nor another name."""
        hubs = self.places[:0] if self.city.hubs is None else self.places[np.asarray(self.city.hubs, dtype=bool)]
        parts: list[Svg] = []
        taken: list[tuple[float, float, float]] = []
        for _, name, stops in self._members():
            middle = self.places[stops].mean(axis=0).tolist()
            x, y = self._clear_place(middle, LETTER * len(name) / 2, hubs, taken)
            taken.append((x, y, LETTER * len(name) / 2))
            parts.append(tag("text", name, class_="halo zone-name", x=x, y=y, text_anchor="middle"))
        return parts

    def _clear_place(
        self, middle: list[float], half: float, hubs: FloatArray, taken: list[tuple[float, float, float]]
    ) -> tuple[float, float]:
        """Return the middle of a name's foot: the nearest place that is free; if none is, the zone's middle."""
        steps = [(float(dx), float(dy)) for dx in range(-60, 61, 12) for dy in range(-60, 61, 6)]
        for dx, dy in sorted(steps, key=lambda step: math.hypot(*step)):
            x, y = middle[0] + dx, middle[1] + dy
            if not (half <= x <= WIDTH - half and NAME_HIGH <= y <= self.height - FOOT):
                continue
            # A hub is drawn around its place, and a name from its foot upwards.
            across, down = np.abs(hubs[:, 0] - x), np.abs(hubs[:, 1] - (y - NAME_HIGH / 2 + 2))
            on_hub = bool(((across < half + HUB + 6) & (down < NAME_HIGH / 2 + HUB + 3)).any())
            on_name = any(abs(x - u) < half + more and abs(y - v) < NAME_HIGH for u, v, more in taken)
            if not on_hub and not on_name:
                return x, y
        return middle[0], middle[1]

    def _scale(self) -> list[Svg]:
        """Draw a round length below, left: about a fifth of the width."""
        if not np.ptp(self._kilometres, axis=0).any():
            return []
        rough = WIDTH / 5 / self._pixels_a_kilometre
        power = 10.0 ** math.floor(math.log10(rough))
        length = max(power * factor for factor in (1, 2, 5) if power * factor <= rough)
        y, end = self.height - 8, ROOM + length * self._pixels_a_kilometre
        says = f"{number_text(length)} km" if length >= 1 else f"{number_text(1000 * length)} m"
        line = tag("path", class_="ruler", d=f"M{ROOM:.1f} {y - 5:.1f}v5H{end:.1f}v-5")
        return [line, tag("text", says, x=end + 7, y=y + 1)]
