# SPDX-License-Identifier: Apache-2.0
"""The owner's page of a packing story: what was published, and how the plans made from it performed.

It takes plain numbers, so it does not depend on planning, settling or auditing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.model.domains import Numeric, domain_from
from dunnage.model.guarantees import Guarantee
from dunnage.release import Release
from dunnage.showing import figures as draw
from dunnage.showing.figures import Figure, render, unbroken_percent
from dunnage.text import NO_BREAK, number_text, percent_at_most

MAX_CLASSES_DRAWN, MAX_CLASSES_THINNED, NEIGHBOURS_DRAWN_OF_MORE = 40, 120, 24
MAX_STRATA_NAMED, MAX_DOTS_IN_A_CLASS, MAX_SIZES_APART = 8, 40, 30
MAX_BINS_DRAWN, BINS_DRAWN_OF_MORE, MAX_BINS_WITH_GAPS, MAX_PARTS_DRAWN = 300, 120, 60, 1500
Bins = Sequence[Sequence[float]]  # the true value of each package in each bin


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanView:
    title: str  # `Mean`, `Upper bound`, ...; a title that starts with `True` is a plan made without privacy
    bins: Bins = field(repr=False)  # before repair
    bins_repaired: Bins | None = field(repr=False)  # after repair; None if there was none
    objective: int  # trucks
    bound: int  # proved minimum of trucks
    ratio: float  # trucks over the true optimum
    bins_feasible: float  # share of bins that fit
    plan_feasible: bool  # whether all bins fit
    linkage_mean: float | None  # linkage: how often someone who knows the value of a package can name its truck
    linkage_worst: float | None
    linkage_kind: str  # `exact` or `estimate`
    seconds: float  # to make the plan
    repair: str  # one sentence; empty if there was no repair

    @property
    def on_truth(self) -> bool:
        return self.title.casefold().startswith("true")

    @property
    def optimum(self) -> int:
        return max(1, round(self.objective / self.ratio))


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadsStory:
    title: str  # heading of the page
    release: Release  # what the planner saw
    quantity: str  # the name of the number that is packed
    truth: FloatArray = field(repr=False)  # true value of each released row; private
    capacity: float  # of one truck
    plans: Sequence[PlanView]  # to compare, in this order

    @property
    def unit(self) -> str:
        return self.release.attributes[self.quantity].unit

    @property
    def record(self) -> str:
        return self.release.certificate.guarantee.protects

    @property
    def num_drawn(self) -> int:
        most = max(len(bins) for plan in self.plans for bins in (plan.bins, plan.bins_repaired) if bins is not None)
        return most if most <= MAX_BINS_DRAWN else BINS_DRAWN_OF_MORE

    def amount(self, value: float) -> str:
        return f"{number_text(value)}{NO_BREAK}{self.unit}" if self.unit else number_text(value)

    def excess(self, bins: Bins) -> FloatArray:
        """Return the excess load of each overloaded truck."""
        over = _loads(bins) - self.capacity
        excess: FloatArray = over[over > draw.SLACK * self.capacity]
        return excess

    def overflow(self, bins: Bins) -> str:
        excess = self.excess(bins)
        if not len(excess):
            return "no truck is overloaded"
        worst = float(excess.max())
        verb = "is" if len(excess) == 1 else "are"
        by = f"{self.amount(worst)} ({unbroken_percent(worst / self.capacity)})"
        return f"{len(excess):,} of {len(bins):,} {verb} overloaded, at worst by {by}"


def loads_page(story: LoadsStory) -> str:
    """Write the owner's page of a packing story. It shows true values: keep the file private (mode 0600)."""
    certificate, ranges = story.release.certificate, _ranges(story)
    # Figures that users of other tools know.
    rows, facts = certificate.rows, list[tuple[str, str]]()
    size, suppressed, risks, loss = rows.class_size, rows.suppressed, rows.risks, rows.loss
    if size is not None and suppressed is not None and risks is not None and loss is not None:
        sizes = f"{size.smallest:,}, {number_text(round(size.mean, 1))}, {size.largest:,}"
        facts = [
            ("Smallest, mean, largest class", sizes),
            ("Suppressed", f"{suppressed.count:,} ({unbroken_percent(suppressed.share)})"),
            ("Prosecutor risk, highest", percent_at_most(risks.prosecutor_highest).replace(" ", NO_BREAK)),
            ("Marketer risk", unbroken_percent(risks.marketer)),
            ("Information loss", unbroken_percent(loss.total)),
        ]
    # The guarantee, and the best plan made from the release beside the true optimum.
    figures, basis = [Figure(f"{story.record}s", f"{len(story.release):,}", "released")], str(certificate.basis)
    if rows.k_asked is None or rows.k_reached is None or size is None:
        figures.append(Figure("epsilon", str(certificate.guarantee.to_dict().get("epsilon", "none")), basis))
    else:
        figures.append(Figure("k reached", f"{rows.k_reached:,}", f"{rows.k_asked:,} required, {basis}"))
        figures.append(Figure("classes", f"{rows.classes:,}", f"mean size {number_text(round(size.mean, 1))}"))
    optimum, private = story.plans[0].optimum, [plan for plan in story.plans if not plan.on_truth]
    figures.append(Figure("trucks, no privacy", f"{optimum:,}", "the fewest possible"))
    settled: list[tuple[int, str]] = []  # trucks and titles of the plans that end without an overloaded truck
    for plan in private:
        if plan.bins_repaired is None and plan.plan_feasible:
            settled.append((plan.objective, plan.title))
        elif plan.bins_repaired is not None and not len(story.excess(plan.bins_repaired)):
            settled.append((len(plan.bins_repaired), f"{plan.title}, after repair"))
    if settled:
        trucks, note = min(settled, key=lambda pair: pair[0])
        more = trucks - optimum
        cost = _compare(trucks, optimum, "without privacy") if more else "no more trucks"
        figures.append(Figure("trucks, with privacy", f"{trucks:,}", note))
        figures.append(Figure("cost of privacy", f"{more:+,}" if more else "0", cost))
    elif private:
        figures.append(Figure("trucks, with privacy", "no plan fits", "every plan overloads trucks"))
    content = {
        "story": story,
        "certificate": certificate,
        "figures": figures,
        "intervals": _interval_picture(story, ranges),
        "sizes": _size_picture(story, ranges),
        "class_facts": facts,
        "guarantee": guarantee_words(certificate.guarantee),
        "holds": "" if certificate.holds is None else guarantee_words(certificate.holds),
        "odds": draw.odds_words(certificate.meaning.odds, lambda bound: percent_at_most(bound).replace(" ", NO_BREAK)),
        "loads": _load_pictures(story),
        "wide": story.num_drawn > MAX_BINS_WITH_GAPS,
        "has_mean": ranges.mean is not None,
        "count": _count,
        "compare": _compare,
    }
    return render("loads.html", content)


def loads_pictures(story: LoadsStory) -> tuple[draw.Picture, dict[str, draw.Picture]]:
    """Draw the pictures of a story for another page: the ranges, and the loads by title."""
    return _interval_picture(story, _ranges(story)), {picture.title: picture for picture in _load_pictures(story)}


# Words and numbers


def _count(number: int, noun: str) -> str:
    ending = "" if number == 1 or noun.endswith("s") else "s"
    return f"{number:,} class{'' if number == 1 else 'es'}" if noun == "class" else f"{number:,} {noun}{ending}"


def _compare(trucks: int, optimum: int, than: str) -> str:
    if trucks == optimum:
        return f"as many as {than}"
    change = abs(trucks / optimum - 1)
    # two digits are enough
    return f"{unbroken_percent(float(f'{change:.2g}'))} {'more' if trucks > optimum else 'fewer'} than {than}"


def _loads(bins: Bins) -> FloatArray:
    return np.array([math.fsum(parts) for parts in bins])


def guarantee_words(stated: Guarantee) -> str:
    parts = stated.to_dict()
    model, _ = draw.MODELS.get(str(parts.pop("model")), ("a guarantee of another kind", ""))
    protects, neighbours = parts.pop("protects"), parts.pop("neighbours", None)
    given = ", ".join(f"{name} = {value}" for name, value in parts.items())
    words = f"{model} with {given}" if given else model
    return f"{words}, for one {protects}" + (f" ({neighbours} neighbours)" if neighbours else "")


# The released ranges and the true values


class _Ranges(NamedTuple):
    """Rows grouped by class and range, in the order to draw them."""

    lower: FloatArray
    upper: FloatArray
    mean: FloatArray | None
    stratum: list[str]  # public values; empty if there are too many to name
    members: list[IntArray]  # rows of each

    @property
    def sizes(self) -> IntArray:
        return np.array([len(rows) for rows in self.members])


def _ranges(story: LoadsStory) -> _Ranges:
    data, name = story.release.data, story.quantity
    lower, upper = (data.column(f"{name}_{end}").to_numpy() for end in ("lower", "upper"))
    class_id = data.column("class_id").to_numpy() if "class_id" in data.column_names else np.arange(len(lower))
    keys = np.stack([class_id, lower, upper], axis=1)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    public = [item.name for item in story.release.certificate.attributes if item.role == "public"]
    values = [data.column(item).take(first).to_pylist() for item in public if item in data.column_names]
    strata = [", ".join(map(str, row)) for row in zip(*values, strict=True)] if values else []
    if not 1 < len(set(strata)) <= MAX_STRATA_NAMED:
        strata = [""] * len(first)
    order = sorted(range(len(first)), key=lambda i: (strata[i], lower[first[i]], upper[first[i]]))
    group = inverse.reshape(-1)
    ends = np.cumsum(np.bincount(group, minlength=len(first)))[:-1]
    members = np.split(np.argsort(group, kind="stable"), ends)
    chosen = first[order]
    mean = data.column(f"{name}_mean").to_numpy()[chosen] if f"{name}_mean" in data.column_names else None
    return _Ranges(lower[chosen], upper[chosen], mean, [strata[i] for i in order], [members[i] for i in order])


def _spread(number: int, max_number: int) -> IntArray:
    """Return at most ``max_number`` of the numbers below ``number``, evenly spread, with both ends."""
    return np.unique(np.linspace(0, number - 1, min(number, max_number)).round().astype(np.int64))


def _interval_picture(story: LoadsStory, ranges: _Ranges) -> draw.Picture:
    """Draw each class: its range as a bar, its true values as dots, its mean as a tick."""
    chosen, notes = _chosen_classes(ranges)
    true = story.truth[np.concatenate([ranges.members[index] for index in chosen])]
    low = min(float(ranges.lower[chosen].min()), float(true.min()))
    high = max(float(ranges.upper[chosen].max()), float(true.max()))
    scale = draw.Scale(*draw.span(low, high))
    parts: list[draw.Svg] = []
    y, stratum = 4.0, ""
    for index in chosen.tolist():
        if ranges.stratum[index] != stratum:
            stratum = ranges.stratum[index]
            y += 20
            parts.append(draw.tag("text", stratum, class_="group", x="0", y=y - 6))
        lower, upper, rows = float(ranges.lower[index]), float(ranges.upper[index]), ranges.members[index]
        seen = f"{number_text(lower)} to {story.amount(upper)}"
        tip = draw.tag("title", f"{_count(len(rows), story.record)} seen as {seen}")
        width = f"{draw.short(scale.at(upper) - scale.at(lower))}%"
        parts.append(draw.tag("rect", tip, class_="range", x=scale.across(lower), width=width, y=y, height=11, rx=2))
        values = np.sort(story.truth[rows])[_spread(len(rows), MAX_DOTS_IN_A_CLASS)]
        dots = [draw.tag("circle", cx=scale.across(float(value)), cy=y + 5.5, r=2.2) for value in values]
        parts.append(draw.tag("g", *dots, class_="dots"))
        if ranges.mean is not None:
            mean = scale.at(float(ranges.mean[index]))
            parts += draw.joined([(mean, y - 1), (mean, y + 12)], "mean")
        y += 15
    if int(ranges.sizes.max()) > MAX_DOTS_IN_A_CLASS:
        notes.append(f"The picture shows at most {MAX_DOTS_IN_A_CLASS} dots per class.")
    sizes, order = ranges.sizes, np.concatenate(ranges.members)
    wide = float(np.average(ranges.upper - ranges.lower, weights=sizes))
    lows, highs = np.repeat(ranges.lower, sizes), np.repeat(ranges.upper, sizes)
    room = draw.SLACK * max(1.0, float(np.abs(highs).max()))
    inside = int(((story.truth[order] >= lows - room) & (story.truth[order] <= highs + room)).sum())
    stated = story.release.attributes[story.quantity].domain
    domain = None if stated is None else domain_from(stated)
    share = ""
    if isinstance(domain, Numeric) and domain.upper > domain.lower:
        first, last = float(domain.lower), float(domain.upper)
        public = f"{number_text(first)} to {story.amount(last)}"
        share = f", which is {unbroken_percent(wide / (last - first))} of the public domain ({public})"
    caption = (
        f"On average, the range of a {story.record} is {story.amount(wide)} wide{share}. "
        f"{'All' if inside == len(order) else f'{inside:,}'} of the {_count(len(order), 'true ' + story.quantity)} "
        f"{'lies' if inside == 1 else 'lie'} within the range that the planner saw."
    )
    axis = draw.x_axis(scale, y + 4, f"{story.quantity}, {story.unit}" if story.unit else story.quantity)
    svg = draw.chart(y + 44, [*axis, *parts], label=caption, kind="flat")
    return draw.Picture(title="", svg=svg, caption=caption, note=" ".join(notes))


def _chosen_classes(ranges: _Ranges) -> tuple[IntArray, list[str]]:
    """Choose the classes to draw: all, some across the whole span, or neighbours if there are very many."""
    number = len(ranges.lower)
    if number <= MAX_CLASSES_DRAWN:
        return np.arange(number), []
    if number <= MAX_CLASSES_THINNED:
        chosen = _spread(number, MAX_CLASSES_DRAWN)
        return chosen, [f"The picture shows {len(chosen):,} of {_count(number, 'class')}, evenly spread."]
    largest, _ = Counter(ranges.stratum).most_common(1)[0]
    classes = np.array([index for index, name in enumerate(ranges.stratum) if name == largest])
    start = max(0, (len(classes) - NEIGHBOURS_DRAWN_OF_MORE) // 2)
    chosen = classes[start : start + NEIGHBOURS_DRAWN_OF_MORE]
    where = f" of {largest}" if largest else ""
    return chosen, [f"The picture shows {len(chosen):,} of {number:,} classes: neighbours from the middle{where}."]


def _size_picture(story: LoadsStory, ranges: _Ranges) -> draw.Picture | None:
    """Draw the number of classes by size, if the policy requires a minimum size."""
    k, sizes = story.release.certificate.rows.k_asked, ranges.sizes
    if k is None:
        return None
    smallest, largest = int(sizes.min()), int(sizes.max())
    low, high = min(k, smallest), max(k + 6, largest)
    step = max(1, math.ceil((high - low + 1) / MAX_SIZES_APART))
    counts = np.bincount((sizes - low) // step).tolist()
    x = draw.Scale(low - 0.75 * step, low + step * max(len(counts), 4) + 0.25 * step)
    y = draw.Scale(0, float(max(counts)) * 1.05, 178, 38)
    stacks = []
    for place, number in enumerate(counts):
        size = low + step * place
        named = f"{size:,}" if step == 1 else f"{size:,} to {size + step - 1:,}"
        stacks.append(
            draw.StackedColumn(size, size + step, [("bar", number)], f"{_count(number, 'class')} of size {named}")
        )
    # a bar lies between its size and the next, so the line of k is at its left edge
    whole = [value for value in x.ticks(6) if value == round(value) and value + step <= x.high]
    labels = [(x.across(value + step / 2), number_text(value)) for value in whole]
    kept = "as required" if smallest >= k else f"fewer than the {k:,} required"
    between = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    caption = f"{_count(len(sizes), 'class')} of {between} {story.record}s: at least {smallest:,} in each, {kept}."
    below = draw.lower_axis(178, f"{story.record}s in the class", labels)
    mark = draw.upright(x, k, 178, f"k = {k:,} required")
    svg = draw.columns(x, y, stacks, y_title="classes", whole=True, below=below, more=mark, label=caption)
    return draw.Picture(title="", svg=svg, caption=caption)


# Loads of the trucks


def _load_pictures(story: LoadsStory) -> list[draw.Picture]:
    shown: list[tuple[str, Bins]] = []
    for plan in story.plans:
        shown.append((plan.title, plan.bins))
        if plan.bins_repaired is not None:
            shown.append((f"{plan.title}, after repair", plan.bins_repaired))
    fullest = max(float(_loads(bins).max()) for _, bins in shown)
    y = draw.Scale(0, max(1.12 * story.capacity, 1.02 * fullest), 190, 32)
    x = draw.Scale(0, float(max(story.num_drawn, 8)))
    capacity, pictures = story.capacity, []
    for title, bins in shown:  # each truck as a bar up to its load, with a line between packages
        loads = _loads(bins)
        num_shown = min(len(bins), round(x.high))
        order = np.argsort(-loads, kind="stable")[:num_shown].tolist()
        stacked = sum(len(bins[i]) for i in order) <= MAX_PARTS_DRAWN
        gap = 0.0 if x.high > MAX_BINS_WITH_GAPS else 0.09
        stacks, cuts = [], []
        for place, i in enumerate(order):
            load = float(loads[i])
            over = load - capacity > draw.SLACK * capacity
            tip = f"Truck {place + 1:,}: {story.amount(load)}, {_count(len(bins[i]), story.record)}"
            tip += f", {story.amount(load - capacity)} too much" if over else ""
            # without gaps, each bar reaches a little under the next, so that no seam is visible
            left, right = place + gap, place + 1 - gap + (0 if gap else 0.1)
            stacks.append(draw.StackedColumn(left, right, [("bar over" if over else "bar", load)], tip))
            for cut in np.cumsum(sorted(bins[i], reverse=True))[:-1].tolist() if stacked else []:
                cuts += draw.joined([(x.at(left), y.at(cut)), (x.at(right), y.at(cut))], "cut")
        labels = [(x.across(number - 0.5), f"{number:,}") for number in sorted({1, num_shown})]
        marks = draw.level(y, capacity, f"capacity {story.amount(capacity)}")
        if num_over := len(story.excess(bins)):
            marks.append(draw.tag("text", f"▲ {num_over:,} overloaded", class_="halo warn", x="0", y=28))
        mean = float(loads.mean()) / capacity
        caption = (
            f"{_count(len(bins), 'truck')}, filled to {unbroken_percent(mean)} on average; {story.overflow(bins)}."
        )
        svg = draw.columns(
            x,
            y,
            stacks,
            y_title=f"load, {story.unit}" if story.unit else "load",
            below=draw.lower_axis(190, "trucks, fullest first", labels),
            gap=0.0,
            more=[*cuts, *marks],
            label=f"{title}: {caption}",
        )
        note = f"The picture shows the {num_shown:,} fullest of {len(bins):,} trucks." if num_shown < len(bins) else ""
        pictures.append(draw.Picture(title=title, svg=svg, caption=caption, note=note))
    return pictures
