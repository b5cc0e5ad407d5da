# SPDX-License-Identifier: Apache-2.0
"""The owner's page of a packing story: what was published, and how the plans made from it fared.

It takes bare figures, so it depends on nothing that plans, applies or audits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.certificate import Certificate, RowMeasures
from dunnage.domains import domain_from
from dunnage.domains.numeric import Numeric
from dunnage.errors import ParameterError
from dunnage.guarantees import Basis, Guarantee
from dunnage.pages.common import Figure, render
from dunnage.release import Release
from dunnage.svg import (
    SLACK,
    Picture,
    Scale,
    Svg,
    chart,
    column,
    joined,
    level,
    lower_axis,
    short,
    span,
    tag,
    upright,
    x_axis,
    y_axis,
)
from dunnage.text import NO_BREAK, large_percent, number_text

MOST_CLASSES_DRAWN = 40
MOST_CLASSES_THINNED = 120
NEIGHBOURS_DRAWN_OF_MORE = 24
MOST_STRATA_NAMED = 8
MOST_DOTS_IN_A_CLASS = 40
MOST_BINS_DRAWN = 300
BINS_DRAWN_OF_MORE = 120
MOST_BINS_WITH_GAPS = 60
MOST_PARTS_DRAWN = 1500
MOST_SIZES_APART = 30
_ABSENT = "\u2013"

_BASIS_WORDS = {
    "proved": "The stated guarantee follows from the code, under the assumptions named below.",
    "claimed": "The guarantee is stated as in the paper it comes from; it is not proved in full.",
    "void": "This release is not private. Nothing is promised.",
}
_BASIS_MARKS = {"proved": "✓", "claimed": "!", "void": "✕"}
_MODEL_WORDS = {
    "k-anonymity": "k-anonymity",
    "dp": "differential privacy",
    "sampled-dp": "differential privacy by sampling",
    "within-cluster": "differential privacy within clusters",
    "within-published-borders": "differential privacy within published borders",
    "local-dp": "local differential privacy",
    "metric-local-dp": "local differential privacy by distance",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanView:
    """One plan, applied to the true values."""

    title: str  # `Mean`, `Upper bound`, ...; a title that starts with `True` is the plan made without privacy
    bins: Sequence[Sequence[float]] = field(repr=False)  # True value of each package in each bin, before any repair
    # The same after the repair; None if there was none
    bins_repaired: Sequence[Sequence[float]] | None = field(repr=False)
    objective: int  # objective, bound, ratio: trucks, the proven least number of them, and trucks over the true optimum
    bound: int
    ratio: float
    bins_feasible: float  # bins_feasible, plan_feasible: share of the bins that fit, and whether all do
    plan_feasible: bool
    # linkage_mean, linkage_worst, linkage_kind: how likely somebody who knows a package's value names its truck;
    # `exact` or `estimate`
    linkage_mean: float | None
    linkage_worst: float | None
    linkage_kind: str
    seconds: float  # Time the plan took
    repair: str  # What the repair did, in one sentence; empty if nothing

    def __post_init__(self) -> None:
        if not self.bins:
            raise ParameterError(f"plan {self.title!r} has no bins. Give at least one.")
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise ParameterError(f"the ratio of plan {self.title!r} must be more than 0. Got {self.ratio}.")

    @property
    def on_truth(self) -> bool:
        """Whether the plan was made on the true values, without privacy."""
        return self.title.casefold().startswith("true")

    @property
    def optimum(self) -> int:
        """The fewest trucks for the true values, as the ratio states it."""
        return max(1, round(self.objective / self.ratio))


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadsStory:
    """A release of packages and what became of the plans made from it."""

    title: str  # Heading of the page
    release: Release  # What the planner saw
    quantity: str  # The released number that is packed
    truth: FloatArray = field(repr=False)  # True value of each released row: for the owner's eyes
    capacity: float  # What one truck holds
    plans: Sequence[PlanView]  # The plans to compare, in the order to show them

    def __post_init__(self) -> None:
        if self.quantity not in self.release.quantities:
            known = ", ".join(self.release.quantities) or "none"
            raise ParameterError(f"the release has no quantity {self.quantity!r}. It has: {known}.")
        if len(self.truth) != len(self.release):
            raise ParameterError(
                f"truth must have one value a released row. Got {len(self.truth)} for {len(self.release)} rows."
            )
        if not (math.isfinite(self.capacity) and self.capacity > 0):
            raise ParameterError(f"the capacity must be more than 0. Got {self.capacity}.")
        if not self.plans:
            raise ParameterError("a story needs at least one plan. Got none.")

    @property
    def unit(self) -> str:
        return self.release.attributes[self.quantity].unit

    @property
    def record(self) -> str:
        """What one released row is, in the certificate's word."""
        return self.release.certificate.guarantee.protects


def loads_page(story: LoadsStory) -> str:
    """Write the owner's page of a packing story.

    It shows true values: keep the file private (mode 0600), as every audit.
    """
    ranges = _ranges(story)
    cards = _load_pictures(story)
    has_mean = f"{story.quantity}_mean" in story.release.data.column_names
    repairs = []
    for plan in story.plans:
        if plan.repair:
            repairs.append((plan.title, plan.repair))
        elif not plan.plan_feasible and plan.bins_repaired is None:
            repairs.append((plan.title, "It overflows and was not repaired."))
    content = {
        "story": story,
        "certificate": story.release.certificate,
        "lead": _lead(story),
        "figures": _key_figures(story),
        "intervals": _interval_picture(story, ranges),
        "sizes": _size_picture(story, ranges),
        "class_facts": _class_facts(story.release.certificate.rows),
        "promise": _promise(story.release.certificate),
        "findings": [(plan.title, _finding(story, plan)) for plan in story.plans],
        "loads": cards,
        "wide": _num_drawn(story) > MOST_BINS_WITH_GAPS,
        "rows": [_table_row(plan) for plan in story.plans],
        "any_repaired": any(plan.bins_repaired is not None for plan in story.plans),
        "repairs": repairs,
        "mean_word": "class mean" if has_mean else "",
        "dot_words": f"true {story.quantity}, seen by the owner alone",
    }
    return render("loads.html", content)


def loads_pictures(story: LoadsStory) -> tuple[Picture, dict[str, Picture]]:
    """Draw the pictures of a story by themselves, for another page: the ranges, and by title the loads."""
    return _interval_picture(story, _ranges(story)), {picture.title: picture for picture in _load_pictures(story)}


# Words and numbers


def _percent(share: float) -> str:
    return large_percent(share).replace(" ", NO_BREAK)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun if noun.endswith('s') else noun + 's'}"


def _classes_word(number: int) -> str:
    return f"{number:,} class" if number == 1 else f"{number:,} classes"


def _with_unit(value: float, unit: str) -> str:
    return f"{number_text(value)}{NO_BREAK}{unit}" if unit else number_text(value)


def _against(trucks: int, optimum: int, than: str) -> str:
    """Say how a number of trucks compares, in per cent."""
    if trucks == optimum:
        return f"as many as {than}"
    change = abs(trucks / optimum - 1)
    # two digits say enough of a change
    return f"{_percent(float(f'{change:.2g}'))} {'more' if trucks > optimum else 'fewer'} than {than}"


def _loads(bins: Sequence[Sequence[float]]) -> FloatArray:
    return np.array([math.fsum(parts) for parts in bins])


def _excess(story: LoadsStory, bins: Sequence[Sequence[float]]) -> FloatArray:
    over = _loads(bins) - story.capacity
    excess: FloatArray = over[over > SLACK * story.capacity]
    return excess


def _overflow(story: LoadsStory, bins: Sequence[Sequence[float]]) -> str:
    excess = _excess(story, bins)
    if not len(excess):
        return "none overflows"
    worst = f"{_with_unit(float(excess.max()), story.unit)} ({_percent(float(excess.max()) / story.capacity)})"
    verb = "overflows" if len(excess) == 1 else "overflow"
    return f"{len(excess):,} of {len(bins):,} {verb}, the worst by {worst}"


def _finding(story: LoadsStory, plan: PlanView) -> str:
    """Say in one line how a plan fared; its figures are the story's."""
    compared = _against(plan.objective, plan.optimum, f"the true optimum of {plan.optimum:,}")
    says = f"{_count(plan.objective, 'truck')}, {compared}; {_overflow(story, plan.bins)}."
    if plan.bins_repaired is not None:
        after = len(plan.bins_repaired)
        says += f" After repair {_count(after, 'truck')}, {_overflow(story, plan.bins_repaired)}."
    return says


def _key_figures(story: LoadsStory) -> list[Figure]:
    """Tell of the guarantee, and compare the best plan made from the release with the true optimum."""
    certificate = story.release.certificate
    rows, basis = certificate.rows, str(certificate.basis)
    figures = [Figure(f"{story.record}s", f"{len(story.release):,}", "released")]
    if rows.k_asked is None or rows.k_reached is None or rows.class_size is None:
        epsilon = certificate.guarantee.to_dict().get("epsilon", "none")
        figures.append(Figure("epsilon", str(epsilon), basis))
    else:
        figures.append(Figure("k reached", f"{rows.k_reached:,}", f"{rows.k_asked:,} asked, {basis}"))
        mean = number_text(round(rows.class_size.mean, 1))
        figures.append(Figure("classes", f"{rows.classes:,}", f"mean size {mean}"))
    optimum = story.plans[0].optimum
    figures.append(Figure("trucks, no privacy", f"{optimum:,}", "true optimum"))
    private = [plan for plan in story.plans if not plan.on_truth]
    settled: list[tuple[int, str]] = []  # trucks that leave, none overloaded, of plans that get there
    for plan in private:
        if plan.bins_repaired is None and plan.plan_feasible:
            settled.append((plan.objective, plan.title))
        elif plan.bins_repaired is not None and not len(_excess(story, plan.bins_repaired)):
            settled.append((len(plan.bins_repaired), f"{plan.title}, after repair"))
    if settled:
        trucks, note = min(settled, key=lambda pair: pair[0])
        more = trucks - optimum
        cost = _against(trucks, optimum, "without") if more else "no more trucks"
        figures.append(Figure("trucks, private", f"{trucks:,}", note))
        figures.append(Figure("cost of privacy", f"{more:+,}" if more else "0", cost))
    elif private:
        figures.append(Figure("trucks, private", "none fit", "every plan overflows"))
    return figures


def _lead(story: LoadsStory) -> str:
    certificate = story.release.certificate
    k = certificate.rows.k_reached
    if certificate.basis is Basis.VOID:
        promise = ", but the certificate is void: nothing is promised"
    elif k is None:
        promise = f", with {_guarantee_words(certificate.guarantee)}"
    else:
        promise = f", so that each {story.record} looks like at least {k - 1:,} others"
    but = ", except where marked" if any(plan.on_truth for plan in story.plans) else ""
    return (
        f"{_count(len(story.release), story.record)} of the dataset {certificate.dataset} "
        f"{'was' if len(story.release) == 1 else 'were'} published by ranges of {story.quantity}{promise}. "
        f"Trucks of {_with_unit(story.capacity, story.unit)} were packed from that release alone{but}; "
        f"here the plans meet the true {story.quantity}s, to see what privacy cost."
    )


# The certificate


def _guarantee_words(stated: Guarantee) -> str:
    parts = stated.to_dict()
    model = _MODEL_WORDS.get(str(parts.pop("model")), "a guarantee of another kind")
    protects, neighbours = parts.pop("protects"), parts.pop("neighbours", None)
    given = ", ".join(f"{name} = {value}" for name, value in parts.items())
    words = f"{model} with {given}" if given else model
    return f"{words}, for one {protects}" + (f" ({neighbours} neighbours)" if neighbours else "")


@dataclass(frozen=True, kw_only=True)
class _Promise:
    """What a certificate promises, in words."""

    guarantee: str
    basis: str
    mark: str
    basis_words: str
    why: str
    holds: str
    odds: list[tuple[str, str]]


def _promise(certificate: Certificate) -> _Promise:
    basis, guarantee = str(certificate.basis), _guarantee_words(certificate.guarantee)
    stated = {"proved": guarantee[0].upper() + guarantee[1:], "claimed": f"Claimed: {guarantee}"}
    why, odds = certificate.why or "", []
    for row in certificate.meaning.odds:
        if row.right_at_most is not None:
            what, bound = str(row.attack), row.right_at_most
        elif row.at_most is not None:
            what, bound = f"a suspicion of {_percent(row.before or 0.0)} becomes", row.at_most
        else:
            what = f"with a suspicion of {_percent(row.before or 0.0)}, the best guess is right"
            bound = row.right_guess_at_most or 0.0
        # All the digits a certificate has: a bound was rounded up and must stay so.
        odds.append((what, f"{100 * bound:.4g}{NO_BREAK}%"))
    return _Promise(
        guarantee=stated.get(basis, f"Stated, but void: {guarantee}") + ".",
        basis=basis,
        mark=_BASIS_MARKS[basis],
        basis_words=_BASIS_WORDS[basis],
        why="" if any(why in sentence for sentence in certificate.meaning.sentences) else why,
        holds="" if certificate.holds is None else _guarantee_words(certificate.holds),
        odds=odds,
    )


def _class_facts(rows: RowMeasures) -> list[tuple[str, str]]:
    """Name the figures that users of other tools know."""
    size, suppressed, risks, loss = rows.class_size, rows.suppressed, rows.risks, rows.loss
    if size is None or suppressed is None or risks is None or loss is None:
        return []
    sizes = f"{size.smallest:,}, {number_text(round(size.mean, 1))}, {size.largest:,}"
    return [
        ("Smallest, mean, largest class", sizes),
        ("Suppressed", f"{suppressed.count:,} ({_percent(suppressed.share)})"),
        ("Prosecutor risk, highest", _percent(risks.prosecutor_highest)),
        ("Marketer risk", _percent(risks.marketer)),
        (f"Information loss, of 100{NO_BREAK}%", _percent(loss.total)),
    ]


# The release as ranges over the true values


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Rows that share class and range, in the order to draw them."""

    lower: FloatArray
    upper: FloatArray
    mean: FloatArray | None
    stratum: list[str]  # public values; empty where there are too many to name
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
    columns = [data.column(item).take(first).to_pylist() for item in public if item in data.column_names]
    strata = [", ".join(map(str, values)) for values in zip(*columns, strict=True)] if columns else []
    if not 1 < len(set(strata)) <= MOST_STRATA_NAMED:
        strata = [""] * len(first)
    order = sorted(range(len(first)), key=lambda i: (strata[i], lower[first[i]], upper[first[i]]))
    group = inverse.reshape(-1)
    ends = np.cumsum(np.bincount(group, minlength=len(first)))[:-1]
    members = np.split(np.argsort(group, kind="stable"), ends)
    chosen = first[order]
    return _Ranges(
        lower=lower[chosen],
        upper=upper[chosen],
        mean=data.column(f"{name}_mean").to_numpy()[chosen] if f"{name}_mean" in data.column_names else None,
        stratum=[strata[i] for i in order],
        members=[members[i] for i in order],
    )


def _spread(number: int, most: int) -> IntArray:
    """Return at most so many of the first whole numbers, evenly spread, both ends among them."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(np.int64))


def _interval_picture(story: LoadsStory, ranges: _Ranges) -> Picture:
    """Draw classes: the range of each as a bar, its true values as dots, its mean as a tick."""
    drawn, notes = _drawn_classes(ranges)
    true = story.truth[np.concatenate([ranges.members[index] for index in drawn])]
    low = min(float(ranges.lower[drawn].min()), float(true.min()))
    high = max(float(ranges.upper[drawn].max()), float(true.max()))
    scale = Scale(*span(low, high))
    parts: list[Svg] = []
    y, stratum = 4.0, ""
    for index in drawn.tolist():
        if ranges.stratum[index] != stratum:
            stratum = ranges.stratum[index]
            y += 20
            parts.append(tag("text", stratum, class_="group", x="0", y=y - 6))
        lower, upper, rows = float(ranges.lower[index]), float(ranges.upper[index]), ranges.members[index]
        seen = f"{number_text(lower)} to {_with_unit(upper, story.unit)}"
        tip = tag("title", f"{_count(len(rows), story.record)} seen as {seen}")
        width = f"{short(scale.at(upper) - scale.at(lower))}%"
        parts.append(tag("rect", tip, class_="range", x=scale.across(lower), width=width, y=y, height=11, rx=2))
        values = np.sort(story.truth[rows])[_spread(len(rows), MOST_DOTS_IN_A_CLASS)]
        dots = [tag("circle", cx=scale.across(float(value)), cy=y + 5.5, r=2.2) for value in values]
        parts.append(tag("g", *dots, class_="dots"))
        if ranges.mean is not None:
            mean = scale.at(float(ranges.mean[index]))
            parts += joined([(mean, y - 1), (mean, y + 12)], "mean")
        y += 15
    if int(ranges.sizes.max()) > MOST_DOTS_IN_A_CLASS:
        notes.append(f"At most {MOST_DOTS_IN_A_CLASS} dots a class.")
    caption = _interval_caption(story, ranges)
    axis = x_axis(scale, y + 4, _axis_title(story.quantity, story.unit))
    svg = chart(y + 44, [*axis, *parts], label=caption, kind="flat")
    return Picture(title="", svg=svg, caption=caption, note=" ".join(notes))


def _axis_title(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name


def _interval_caption(story: LoadsStory, ranges: _Ranges) -> str:
    sizes, rows = ranges.sizes, np.concatenate(ranges.members)
    width = float(np.average(ranges.upper - ranges.lower, weights=sizes))
    lower, upper = np.repeat(ranges.lower, sizes), np.repeat(ranges.upper, sizes)
    room = SLACK * max(1.0, float(np.abs(upper).max()))
    inside = int(((story.truth[rows] >= lower - room) & (story.truth[rows] <= upper + room)).sum())
    stated = story.release.attributes[story.quantity].domain
    domain = None if stated is None else domain_from(stated)
    share = ""
    if isinstance(domain, Numeric) and domain.upper > domain.lower:
        low, high = float(domain.lower), float(domain.upper)
        public = f"{number_text(low)} to {_with_unit(high, story.unit)}"
        share = f", {_percent(width / (high - low))} of the public domain ({public})"
    held = "all" if inside == len(rows) else f"{inside:,}"
    return (
        f"The range of a {story.record} is {_with_unit(width, story.unit)} wide on average{share}; "
        f"{held} of the {_count(len(rows), 'true ' + story.quantity)} "
        f"{'lies' if inside == 1 else 'lie'} within the range the planner saw."
    )


def _drawn_classes(ranges: _Ranges) -> tuple[IntArray, list[str]]:
    """Choose the classes to draw: all, or some over the whole span, or neighbours if single ones would vanish."""
    number = len(ranges.lower)
    if number <= MOST_CLASSES_DRAWN:
        return np.arange(number), []
    if number <= MOST_CLASSES_THINNED:
        drawn = _spread(number, MOST_CLASSES_DRAWN)
        return drawn, [f"Drawn: {len(drawn):,} of {_classes_word(number)}, evenly spread."]
    largest, _ = Counter(ranges.stratum).most_common(1)[0]
    held = np.array([index for index, name in enumerate(ranges.stratum) if name == largest])
    start = max(0, (len(held) - NEIGHBOURS_DRAWN_OF_MORE) // 2)
    drawn = held[start : start + NEIGHBOURS_DRAWN_OF_MORE]
    where = f" of {largest}" if largest else ""
    return drawn, [f"Drawn: {len(drawn):,} neighbouring classes from the middle{where}, of {number:,} in all."]


def _size_picture(story: LoadsStory, ranges: _Ranges) -> Picture | None:
    """Draw how many classes there are of which size, if a least size was asked for."""
    asked, sizes = story.release.certificate.rows.k_asked, ranges.sizes
    if asked is None:
        return None
    smallest, largest = int(sizes.min()), int(sizes.max())
    low, high = min(asked, smallest), max(asked + 6, largest)
    step = max(1, math.ceil((high - low + 1) / MOST_SIZES_APART))
    counts = np.bincount((sizes - low) // step).tolist()
    x = Scale(low - 0.75 * step, low + step * max(len(counts), 4) + 0.25 * step)
    y = Scale(0, float(max(counts)) * 1.05, 178, 38)
    parts = y_axis(y, "classes", whole=True)
    for place, number in enumerate(counts):
        size = low + step * place
        named = f"{size:,}" if step == 1 else f"{size:,} to {size + step - 1:,}"
        tip = f"{_classes_word(number)} of size {named}"
        parts += column(x.at(size), x.at(size + step) - x.at(size), y, [("bar", number)], tip)
    # a bar stands between its size and the next, so that the line of k is its left edge
    whole = [value for value in x.ticks(6) if value == round(value) and value + step <= x.high]
    labels = [(x.across(value + step / 2), number_text(value)) for value in whole]
    parts += [
        *lower_axis(178, f"{story.record}s in the class", labels),
        *upright(x, asked, 178, f"k = {asked:,} asked"),
    ]
    kept = "as asked" if smallest >= asked else f"fewer than the {asked:,} asked"
    between = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    caption = f"{_classes_word(len(sizes))} of {between} {story.record}s: at least {smallest:,} in each, {kept}."
    return Picture(title="", svg=chart(218, parts, label=caption), caption=caption)


# Loads of the trucks


def _num_drawn(story: LoadsStory) -> int:
    most = max(len(bins) for plan in story.plans for bins in (plan.bins, plan.bins_repaired) if bins is not None)
    return most if most <= MOST_BINS_DRAWN else BINS_DRAWN_OF_MORE


def _load_pictures(story: LoadsStory) -> list[Picture]:
    shown: list[tuple[str, Sequence[Sequence[float]]]] = []
    for plan in story.plans:
        shown.append((plan.title, plan.bins))
        if plan.bins_repaired is not None:
            shown.append((f"{plan.title}, after repair", plan.bins_repaired))
    fullest = max(float(_loads(bins).max()) for _, bins in shown)
    y = Scale(0, max(1.12 * story.capacity, 1.02 * fullest), 190, 32)
    x = Scale(0, float(max(_num_drawn(story), 8)))
    return [_load_picture(story, title, bins, x, y) for title, bins in shown]


def _load_picture(story: LoadsStory, title: str, bins: Sequence[Sequence[float]], x: Scale, y: Scale) -> Picture:
    """Draw trucks: each a bar to its load, cut where one package ends and the next begins."""
    loads, unit = _loads(bins), story.unit
    drawn = min(len(bins), round(x.high))
    order = np.argsort(-loads, kind="stable")[:drawn].tolist()
    stacked = sum(len(bins[i]) for i in order) <= MOST_PARTS_DRAWN
    gap = 0.0 if x.high > MOST_BINS_WITH_GAPS else 0.09
    parts = y_axis(y, _axis_title("load", unit))
    for place, i in enumerate(order):
        load = float(loads[i])
        over = load - story.capacity > SLACK * story.capacity
        tip = f"Truck {place + 1:,}: {_with_unit(load, unit)}, {_count(len(bins[i]), story.record)}"
        tip += f", {_with_unit(load - story.capacity, unit)} too much" if over else ""
        # without gaps, each bar reaches a little under the next one, so that no seam shows
        left, right = x.at(place + gap), x.at(place + 1 - gap + (0 if gap else 0.1))
        parts += column(left, right - left, y, [("bar over" if over else "bar", load)], tip, gap=0.0)
        for cut in np.cumsum(sorted(bins[i], reverse=True))[:-1].tolist() if stacked else []:
            parts += joined([(left, y.at(cut)), (right, y.at(cut))], "cut")
    labels = [(x.across(number - 0.5), f"{number:,}") for number in sorted({1, drawn})]
    parts += lower_axis(190, "trucks, fullest first", labels)
    parts += level(y, story.capacity, f"capacity {_with_unit(story.capacity, unit)}")
    if num_over := len(_excess(story, bins)):
        parts.append(tag("text", f"▲ {num_over:,} overloaded", class_="halo warn", x="0", y=28))
    mean = float(loads.mean()) / story.capacity
    caption = f"{_count(len(bins), 'truck')}, filled to {_percent(mean)} on average; {_overflow(story, bins)}."
    note = f"Drawn: the {drawn:,} fullest of {len(bins):,} trucks." if drawn < len(bins) else ""
    return Picture(title=title, svg=chart(228, parts, label=f"{title}: {caption}"), caption=caption, note=note)


def _table_row(plan: PlanView) -> dict[str, str]:
    return {
        "plan": plan.title,
        "mark": "no privacy" if plan.on_truth else "",
        "trucks": f"{plan.objective:,}",
        "repaired": _ABSENT if plan.bins_repaired is None else f"{len(plan.bins_repaired):,}",
        "bound": f"{plan.bound:,}",
        "ratio": f"{plan.ratio:.3f}",
        "bins_feasible": _percent(plan.bins_feasible),
        "plan_feasible": "yes" if plan.plan_feasible else "no",
        "linkage_mean": _ABSENT if plan.linkage_mean is None else _percent(plan.linkage_mean),
        "linkage_worst": _ABSENT if plan.linkage_worst is None else _percent(plan.linkage_worst),
        "linkage_kind": plan.linkage_kind if plan.linkage_mean is not None else "",
        "seconds": f"{plan.seconds:.2f}" if plan.seconds >= 0.01 else "under 0.01",
    }
