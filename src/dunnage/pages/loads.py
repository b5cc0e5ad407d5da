# SPDX-License-Identifier: Apache-2.0
"""The owner's page of a packing story: what was published, and how the plans made from it fared.

It takes bare figures, so it depends on nothing that plans, applies or audits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dunnage.arrays import FloatArray, IntArray
from dunnage.errors import ParameterError
from dunnage.pages.common import render
from dunnage.release import Release
from dunnage.svg import SLACK, Scale, Svg, chart, short, span, tag, x_axis, y_axis
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
        """Unit of the quantity; empty if it has none."""
        return str(self.release.attributes[self.quantity].get("domain", {}).get("unit", ""))

    @property
    def record(self) -> str:
        """What one released row is, in the certificate's word."""
        return str(self.release.certificate.body["guarantee"]["protects"])


def loads_page(story: LoadsStory) -> str:
    """Write the owner's page of a packing story.

    It shows true values: keep the file private (mode 0600), as every audit.
    """
    return render("loads.html", _content(story))


def loads_pictures(story: LoadsStory) -> dict[str, Any]:
    """Draw the pictures of a story by themselves, for another page."""
    loads = _load_figures(story)["cards"]
    return {"intervals": _interval_figure(story, _ranges(story)), "loads": {card["title"]: card for card in loads}}


def _content(story: LoadsStory) -> dict[str, Any]:
    ranges = _ranges(story)
    body = story.release.certificate.body
    return {
        "story": story,
        "body": body,
        "lead": _lead(story),
        "figures": _key_figures(story),
        "intervals": _interval_figure(story, ranges),
        "sizes": _size_figure(story, ranges),
        "class_facts": _class_facts(body["measures"]),
        "certificate": _certificate(story),
        "findings": [_finding(story, plan) for plan in story.plans],
        "loads": _load_figures(story),
        "rows": [_table_row(plan) for plan in story.plans],
        "any_repaired": any(plan.bins_repaired is not None for plan in story.plans),
        "repairs": _repairs(story),
        "legend": _legend(story),
    }


# Words and numbers


def _percent(share: float) -> str:
    return large_percent(share).replace(" ", NO_BREAK)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun if noun.endswith('s') else noun + 's'}"


def _classes_word(number: int) -> str:
    return f"{number:,} class" if number == 1 else f"{number:,} classes"


def _with_unit(value: float | str, unit: str) -> str:
    text = value if isinstance(value, str) else number_text(value)
    return f"{text}\u00a0{unit}" if unit else text


def _against(trucks: int, optimum: int, than: str) -> str:
    """Say how a number of trucks compares, in per cent."""
    if trucks == optimum:
        return f"as many as {than}"
    change = abs(trucks / optimum - 1)
    # two digits say enough of a change
    return f"{_percent(float(f'{change:.2g}'))} {'more' if trucks > optimum else 'fewer'} than {than}"


# Findings


def _loads(bins: Sequence[Sequence[float]]) -> FloatArray:
    return np.array([math.fsum(parts) for parts in bins])


def _excess(story: LoadsStory, bins: Sequence[Sequence[float]]) -> FloatArray:
    """Return by how much each overloaded bin is too full."""
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


def _finding(story: LoadsStory, plan: PlanView) -> dict[str, str]:
    """Say in one line how a plan fared; its figures are the story's."""
    than = f"the true optimum of {plan.optimum:,}"
    compared = _against(plan.objective, plan.optimum, than)
    says = f"{_count(plan.objective, 'truck')}, {compared}; {_overflow(story, plan.bins)}."
    if plan.bins_repaired is not None:
        after = len(plan.bins_repaired)
        says += f" After repair {_count(after, 'truck')}, {_overflow(story, plan.bins_repaired)}."
    return {"title": plan.title, "says": says}


def _settled_trucks(story: LoadsStory, plan: PlanView) -> int | None:
    """Return the trucks that leave, none overloaded; None if the plan does not get there."""
    if plan.bins_repaired is not None:
        return None if len(_excess(story, plan.bins_repaired)) else len(plan.bins_repaired)
    return plan.objective if plan.plan_feasible else None


def _key_figures(story: LoadsStory) -> list[dict[str, str]]:
    body = story.release.certificate.body
    return [
        {"name": f"{story.record}s", "value": f"{len(story.release):,}", "note": "released"},
        *_guarantee_figures(body),
        *_truck_figures(story),
    ]


def _guarantee_figures(body: Any) -> list[dict[str, str]]:
    measures, basis = body["measures"], body["basis"]
    if "k_reached" not in measures:
        epsilon = str(body["guarantee"].get("epsilon", "none"))
        return [{"name": "epsilon", "value": epsilon, "note": basis}]
    asked, reached = int(measures["k_asked"]), int(measures["k_reached"])
    size = measures["class_size"]
    return [
        {"name": "k reached", "value": f"{reached:,}", "note": f"{asked:,} asked, {basis}"},
        {
            "name": "classes",
            "value": f"{measures['classes']:,}",
            "note": f"mean size {number_text(round(size['mean'], 1))}",
        },
    ]


def _truck_figures(story: LoadsStory) -> list[dict[str, str]]:
    """Compare the best plan made from the release with the true optimum."""
    optimum = story.plans[0].optimum
    figures = [{"name": "trucks, no privacy", "value": f"{optimum:,}", "note": "true optimum"}]
    private = [plan for plan in story.plans if not plan.on_truth]
    settled = [(trucks, plan) for plan in private if (trucks := _settled_trucks(story, plan)) is not None]
    if settled:
        trucks, plan = min(settled, key=lambda pair: pair[0])
        note = f"{plan.title}, after repair" if plan.bins_repaired is not None else plan.title
        figures.append({"name": "trucks, private", "value": f"{trucks:,}", "note": note})
        return [*figures, _cost_figure(trucks, optimum)]
    if private:
        figures.append({"name": "trucks, private", "value": "none fit", "note": "every plan overflows"})
    return figures


def _cost_figure(trucks: int, optimum: int) -> dict[str, str]:
    more = trucks - optimum
    note = _against(trucks, optimum, "without") if more else "no more trucks"
    return {"name": "cost of privacy", "value": f"{more:+,}" if more else "0", "note": note}


def _lead(story: LoadsStory) -> list[str]:
    body = story.release.certificate.body
    shown = (
        f"{_count(len(story.release), story.record)} of the dataset {body['dataset']} "
        f"{'was' if len(story.release) == 1 else 'were'} published by ranges of {story.quantity}"
    )
    k = body["measures"].get("k_reached")
    if body["basis"] == "void":
        promise = ", but the certificate is void: nothing is promised"
    elif k is None:
        promise = f", with {_guarantee_words(body)}"
    else:
        promise = f", so that each {story.record} looks like at least {int(k) - 1:,} others"
    but = ", except where marked" if any(plan.on_truth for plan in story.plans) else ""
    return [
        f"{shown}{promise}.",
        f"Trucks of {_with_unit(story.capacity, story.unit)} were packed from that release alone{but}; "
        f"here the plans meet the true {story.quantity}s, to see what privacy cost.",
    ]


# The certificate


def _guarantee_words(body: Any) -> str:
    guarantee = dict(body["guarantee"])
    model = _MODEL_WORDS.get(guarantee.pop("model"), "a guarantee of another kind")
    protects = guarantee.pop("protects")
    neighbours = guarantee.pop("neighbours", None)
    given = ", ".join(f"{name} = {value}" for name, value in guarantee.items())
    words = f"{model} with {given}" if given else model
    return f"{words}, for one {protects}" + (f" ({neighbours} neighbours)" if neighbours else "")


def _certificate(story: LoadsStory) -> dict[str, Any]:
    certificate = story.release.certificate
    body, basis = certificate.body, str(certificate.basis)
    guarantee, why = _guarantee_words(body), str(body.get("why", ""))
    stated = {"proved": guarantee[0].upper() + guarantee[1:], "claimed": f"Claimed: {guarantee}"}
    return {
        "guarantee": stated.get(basis, f"Stated, but void: {guarantee}") + ".",
        "basis": basis,
        "mark": _BASIS_MARKS[basis],
        "basis_words": _BASIS_WORDS[basis],
        "why": "" if any(why in sentence for sentence in body["meaning"]["sentences"]) else why,
        "holds": _guarantee_words({"guarantee": body["holds"]}) if "holds" in body else "",
        "odds": [_odds(row) for row in body["meaning"]["odds"]],
        "digest": certificate.digest,
        "signed": certificate.signature is not None,
    }


def _odds(row: dict[str, Any]) -> tuple[str, str]:
    """Give one line of the table of odds: what is tried, and how likely it succeeds at most."""
    if "right_at_most" in row:
        return str(row["attack"]), _bound(row["right_at_most"])
    before = _percent(row["before"])
    if "at_most" in row:
        return f"a suspicion of {before} becomes", _bound(row["at_most"])
    return f"with a suspicion of {before}, the best guess is right", _bound(row["right_guess_at_most"])


def _bound(probability: float) -> str:
    """Write a bound in per cent with all the digits a certificate has: it was rounded up and must stay so."""
    return f"{100 * probability:.4g}\u00a0%"


def _class_facts(measures: Any) -> list[tuple[str, str]]:
    """Name the figures that users of other tools know."""
    if "class_size" not in measures:
        return []
    size, suppressed, risks, loss = (measures[key] for key in ("class_size", "suppressed", "risks", "loss"))
    return [
        (
            "Smallest, mean, largest class",
            f"{size['smallest']:,}, {number_text(round(size['mean'], 1))}, {size['largest']:,}",
        ),
        ("Suppressed", f"{suppressed['count']:,} ({_percent(suppressed['share'])})"),
        ("Prosecutor risk, highest", _percent(risks["prosecutor_highest"])),
        ("Marketer risk", _percent(risks["marketer"])),
        ("Information loss, of 100\u00a0%", _percent(loss["total"])),
    ]


# The release as ranges over the true values


@dataclass(frozen=True, eq=False)
class _Ranges:
    """Rows that share class and range, in the order to draw them."""

    lower: FloatArray
    upper: FloatArray
    mean: FloatArray | None
    stratum: list[str]
    members: list[IntArray]  # rows of each


def _floats(release: Release, name: str) -> FloatArray:
    values: FloatArray = release.data.column(name).to_numpy()
    return values


def _ranges(story: LoadsStory) -> _Ranges:
    release, name = story.release, story.quantity
    columns = release.data.column_names
    lower, upper = _floats(release, f"{name}_lower"), _floats(release, f"{name}_upper")
    class_id = release.data.column("class_id").to_numpy() if "class_id" in columns else np.arange(len(lower))
    keys = np.stack([class_id, lower, upper], axis=1)
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    strata = _strata(release, first)
    order = sorted(range(len(first)), key=lambda i: (strata[i], lower[first[i]], upper[first[i]]))
    members = _members(inverse.reshape(-1), len(first))
    chosen = first[order]
    return _Ranges(
        lower=lower[chosen],
        upper=upper[chosen],
        mean=_floats(release, f"{name}_mean")[chosen] if f"{name}_mean" in columns else None,
        stratum=[strata[i] for i in order],
        members=[members[i] for i in order],
    )


def _members(group: npt.NDArray[np.intp], number: int) -> list[IntArray]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group, minlength=number))[:-1])


def _strata(release: Release, rows: IntArray) -> list[str]:
    """Name the public values of some rows; nothing if there are too many to name."""
    public = [name for name, item in release.attributes.items() if item["role"] == "public"]
    held = [name for name in public if name in release.data.column_names]
    columns = [release.data.column(name).take(rows).to_pylist() for name in held]
    names = [", ".join(str(value) for value in values) for values in zip(*columns, strict=True)] if columns else []
    return names if 1 < len(set(names)) <= MOST_STRATA_NAMED else [""] * len(rows)


def _spread(number: int, most: int) -> IntArray:
    """Return at most so many of the first whole numbers, evenly spread, both ends among them."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(np.int64))


def _interval_figure(story: LoadsStory, ranges: _Ranges) -> dict[str, Any]:
    drawn, note = _drawn_classes(ranges)
    true = story.truth[np.concatenate([ranges.members[index] for index in drawn])]
    low = min(float(ranges.lower[drawn].min()), float(true.min()))
    high = max(float(ranges.upper[drawn].max()), float(true.max()))
    scale = Scale(*span(low, high))
    parts: list[Svg] = []
    y, stratum = 4.0, ""
    for index in drawn:
        if ranges.stratum[index] != stratum:
            stratum = ranges.stratum[index]
            y += 20
            parts.append(tag("text", stratum, class_="group", x="0", y=y - 6))
        parts += _range_row(story, ranges, int(index), scale, y)
        y += 15
    title = _axis_title(story.quantity, story.unit)
    caption = _interval_caption(story, ranges)
    return {
        "svg": chart(y + 44, [*x_axis(scale, y + 4, title), *parts], label=caption, kind="flat"),
        "caption": caption,
        "note": " ".join([*note, *_dots_note(ranges)]),
    }


def _axis_title(name: str, unit: str) -> str:
    return f"{name}, {unit}" if unit else name


def _range_row(story: LoadsStory, ranges: _Ranges, index: int, scale: Scale, y: float) -> list[Svg]:
    """Draw one class: its range as a bar, its true values as dots, its mean as a tick."""
    lower, upper, rows = float(ranges.lower[index]), float(ranges.upper[index]), ranges.members[index]
    span = f"{number_text(lower)} to {_with_unit(upper, story.unit)}"
    tip = tag("title", f"{_count(len(rows), story.record)} seen as {span}")
    width = f"{short(scale.at(upper) - scale.at(lower))}%"
    bar = tag("rect", tip, class_="range", x=scale.across(lower), width=width, y=y, height=11, rx=2)
    values = np.sort(story.truth[rows])[_spread(len(rows), MOST_DOTS_IN_A_CLASS)]
    dots = [tag("circle", cx=scale.across(float(value)), cy=y + 5.5, r=2.2) for value in values]
    row = [bar, tag("g", *dots, class_="dots")]
    if ranges.mean is not None:
        x = scale.across(float(ranges.mean[index]))
        row.append(tag("line", class_="mean", x1=x, x2=x, y1=y - 1, y2=y + 12))
    return row


def _interval_caption(story: LoadsStory, ranges: _Ranges) -> str:
    sizes = np.array([len(rows) for rows in ranges.members])
    width = float(np.average(ranges.upper - ranges.lower, weights=sizes))
    rows = np.concatenate(ranges.members)
    lower, upper = np.repeat(ranges.lower, sizes), np.repeat(ranges.upper, sizes)
    room = SLACK * max(1.0, float(np.abs(upper).max()))
    inside = int(((story.truth[rows] >= lower - room) & (story.truth[rows] <= upper + room)).sum())
    domain = story.release.attributes[story.quantity].get("domain", {})
    share = ""
    if domain.get("upper", 0) > domain.get("lower", 0):
        public = f"{number_text(domain['lower'])} to {_with_unit(float(domain['upper']), story.unit)}"
        share = f", {_percent(width / (domain['upper'] - domain['lower']))} of the public domain ({public})"
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


def _dots_note(ranges: _Ranges) -> list[str]:
    crowded = max(len(rows) for rows in ranges.members) > MOST_DOTS_IN_A_CLASS
    return [f"At most {MOST_DOTS_IN_A_CLASS} dots a class."] if crowded else []


def _legend(story: LoadsStory) -> dict[str, str]:
    has_mean = f"{story.quantity}_mean" in story.release.data.column_names
    return {"mean": "class mean" if has_mean else "", "dot": f"true {story.quantity}, seen by the owner alone"}


# Class sizes


def _size_figure(story: LoadsStory, ranges: _Ranges) -> dict[str, Any] | None:
    measures = story.release.certificate.body["measures"]
    if "k_asked" not in measures:
        return None
    sizes = np.array([len(rows) for rows in ranges.members])
    asked = int(measures["k_asked"])
    low, high = min(asked, int(sizes.min())), max(asked + 6, int(sizes.max()))
    step = max(1, math.ceil((high - low + 1) / MOST_SIZES_APART))
    counts = np.bincount((sizes - low) // step)
    x = Scale(low - 0.75 * step, low + step * max(len(counts), 4) + 0.25 * step)
    y = Scale(0, float(counts.max()) * 1.05, 178, 38)
    bars = [_size_bar(x, y, low + step * i, step, int(number)) for i, number in enumerate(counts) if number]
    # a bar stands between its size and the next, so that the line of k is its left edge
    line = tag("line", class_="limit", x1=x.across(asked), x2=x.across(asked), y1=20, y2=178)
    name = tag("text", f"k = {asked:,} asked", class_="halo", x=x.across(asked), dx="5", y=30)
    caption = _size_caption(sizes, asked, story.record)
    axis = _size_axis(x, step, f"{story.record}s in the class")
    parts = [*y_axis(y, "classes", whole=True), *bars, *axis, line, name]
    return {"svg": chart(218, parts, label=caption), "caption": caption}


def _size_axis(x: Scale, step: int, title: str) -> list[Svg]:
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=178, y2=178)]
    for value in x.ticks(6):
        if value == round(value) and value + step <= x.high:
            parts.append(tag("text", number_text(value), x=x.across(value + step / 2), y=194, text_anchor="middle"))
    return [*parts, tag("text", title, class_="name", x="100%", y=211, text_anchor="end")]


def _size_bar(x: Scale, y: Scale, size: int, step: int, number: int) -> Svg:
    top, width = y.at(number), x.at(size + step) - x.at(size)
    named = f"{size:,}" if step == 1 else f"{size:,} to {size + step - 1:,}"
    tip = tag("title", f"{_classes_word(number)} of size {named}")
    left = f"{short(x.at(size) + 0.06 * width)}%"
    return tag("rect", tip, class_="bar", x=left, width=f"{short(0.88 * width)}%", y=top, height=178 - top)


def _size_caption(sizes: IntArray, asked: int, record: str) -> str:
    smallest, largest = int(sizes.min()), int(sizes.max())
    kept = "as asked" if smallest >= asked else f"fewer than the {asked:,} asked"
    between = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
    return f"{_classes_word(len(sizes))} of {between} {record}s: at least {smallest:,} in each, {kept}."


# Loads of the trucks


def _load_figures(story: LoadsStory) -> dict[str, Any]:
    shown = [(plan.title, plan.bins) for plan in story.plans]
    for place, plan in reversed(list(enumerate(story.plans, start=1))):
        if plan.bins_repaired is not None:
            shown.insert(place, (f"{plan.title}, after repair", plan.bins_repaired))
    most = max(len(bins) for _, bins in shown)
    most = most if most <= MOST_BINS_DRAWN else BINS_DRAWN_OF_MORE
    fullest = max(float(_loads(bins).max()) for _, bins in shown)
    y = Scale(0, max(1.12 * story.capacity, 1.02 * fullest), 190, 32)
    x = Scale(0, float(max(most, 8)))
    return {
        "cards": [_load_card(story, title, bins, x, y) for title, bins in shown],
        "wide": most > MOST_BINS_WITH_GAPS,
    }


def _load_card(story: LoadsStory, title: str, bins: Sequence[Sequence[float]], x: Scale, y: Scale) -> dict[str, Any]:
    drawn = min(len(bins), round(x.high))
    order = np.argsort(-_loads(bins), kind="stable")[:drawn]
    parts = max(1, sum(len(bins[i]) for i in order))
    stacked = parts <= MOST_PARTS_DRAWN
    bars = [bar for place, i in enumerate(order) for bar in _load_bar(story, bins[i], place, x, y, stacked)]
    mean = float(_loads(bins).mean()) / story.capacity
    caption = f"{_count(len(bins), 'truck')}, filled to {_percent(mean)} on average; {_overflow(story, bins)}."
    lines = _capacity_line(story, y, len(_excess(story, bins)))
    axis = _truck_axis(x, drawn)
    picture = [*y_axis(y, _axis_title("load", story.unit)), *bars, *axis, *lines]
    note = f"Drawn: the {drawn:,} fullest of {len(bins):,} trucks." if drawn < len(bins) else ""
    return {"title": title, "svg": chart(228, picture, label=f"{title}: {caption}"), "caption": caption, "note": note}


def _load_bar(story: LoadsStory, parts: Sequence[float], place: int, x: Scale, y: Scale, stacked: bool) -> list[Svg]:
    """Draw one truck: a bar to its load, cut where one package ends and the next begins."""
    load = math.fsum(parts)
    over = load - story.capacity > SLACK * story.capacity
    gap = 0.0 if x.high > MOST_BINS_WITH_GAPS else 0.09
    # without gaps, each bar reaches a little under the next one, so that no seam shows
    left, right = x.across(place + gap), x.across(place + 1 - gap + (0 if gap else 0.1))
    width = f"{short(float(right[:-1]) - float(left[:-1]))}%"
    tip = tag("title", _load_tip(story, parts, place, load - story.capacity if over else 0.0))
    kind = "bar over" if over else "bar"
    bar = tag("rect", tip, class_=kind, x=left, width=width, y=y.at(load), height=y.start - y.at(load))
    cuts = np.cumsum(sorted(parts, reverse=True))[:-1].tolist() if stacked else []
    return [bar, *(tag("line", class_="cut", x1=left, x2=right, y1=y.at(cut), y2=y.at(cut)) for cut in cuts)]


def _load_tip(story: LoadsStory, parts: Sequence[float], place: int, excess: float) -> str:
    says = f"Truck {place + 1:,}: {_with_unit(math.fsum(parts), story.unit)}, {_count(len(parts), story.record)}"
    return f"{says}, {_with_unit(excess, story.unit)} too much" if excess else says


def _capacity_line(story: LoadsStory, y: Scale, num_over: int) -> list[Svg]:
    level = y.at(story.capacity)
    words = f"capacity {_with_unit(story.capacity, story.unit)}"
    parts = [
        tag("line", class_="limit", x1="0", x2="100%", y1=level, y2=level),
        tag("text", words, class_="halo", x="100%", y=level - 5, text_anchor="end"),
    ]
    if num_over:
        parts.append(tag("text", f"▲ {num_over:,} overloaded", class_="halo warn", x="0", y=28))
    return parts


def _truck_axis(x: Scale, drawn: int) -> list[Svg]:
    parts = [tag("line", class_="axis", x1="0", x2="100%", y1=190, y2=190)]
    for number in sorted({1, drawn}):
        parts.append(tag("text", f"{number:,}", x=x.across(number - 0.5), y=206, text_anchor="middle"))
    return [*parts, tag("text", "trucks, fullest first", class_="name", x="100%", y=222, text_anchor="end")]


# The table and the repairs


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


def _repairs(story: LoadsStory) -> list[dict[str, str]]:
    """Say for each plan that needed it what its repair did, or that there was none."""
    told = []
    for plan in story.plans:
        if plan.repair:
            told.append({"title": plan.title, "says": plan.repair})
        elif not plan.plan_feasible and plan.bins_repaired is None:
            told.append({"title": plan.title, "says": "It overflows and was not repaired."})
    return told
