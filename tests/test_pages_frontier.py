# SPDX-License-Identifier: Apache-2.0
"""The page of a frontier: well-formed, closed to the network, escaped, complete without its script, and its script
chooses as the advice does."""

from __future__ import annotations

import json
import math
import random
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from importlib import resources

import pytest
import quickjs
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pages_help import Page, check_closed

from dunnage.advising.advice import choose, first_within, ranking
from dunnage.advising.frontier import OVERLOADED, Failure, Frontier, Limit, Measure, Point
from dunnage.model.documents import Software
from dunnage.showing.frontier import SHAPES, Axis, frontier_figure, frontier_page, looks_of, why_aside
from dunnage.text import share_text

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">{{ 7 * 7 }}\'"&\u2028'
MECHANISMS = ("partition", "full-domain", "noisy-values", "noisy-clusters", "sampled-lattice", "utility-clusters")


def exactly(value: float | Measure) -> Measure:
    return value if isinstance(value, Measure) else Measure(value=value, lower=value, upper=value)


def point(number: int = 0, cost: float | Measure = 0.1, risk: float | Measure = 0.2, **changes) -> Point:
    given = {
        "name": f"partition k={number + 2}, sealed plan",
        "mechanism": "partition",
        "parameters": {"k": number + 2},
        "plan": {"model": "sealed"},
        "cost": exactly(cost),
        "risk": exactly(risk),
        "guarantee": f"k-anonymity, k {number + 2}",
        "basis": "proved",
        "measured_on": "data",
        "draws": 5,
        "figures": {"trucks": 130.4, OVERLOADED: 0.0},
        "seconds": 1.0,
    }
    return Point(**{**given, **changes})


def frontier(*points: Point, **changes) -> Frontier:
    limit = changes.pop("limit", Limit(max_cost=0.05))
    choice = choose(points, limit)
    given = {
        "dataset": "parcels",
        "goal": "trucks",
        "cost_name": "trucks",
        "cost_unit": "more trucks",
        "cost_baseline": "the best plan on the true weights",
        "risk_name": "truck linkage",
        "risk_without_privacy": 1.0,
        "risk_of_chance": 0.01,
        "points": points,
        "limit": limit,
        "recommended" if choice.meets_limit else "closest": choice.point.name if choice.point else None,
        "meets_limit": choice.meets_limit,
        "says": ("Asked for: at most 5 % more trucks.", "Choosing by the data is itself not private.", "Five draws."),
    }
    return Frontier(**{**given, **changes})


def spread(num: int, seed: int = 1) -> tuple[Point, ...]:
    """Points of all mechanisms, bases and kinds of data; some costs are 0, some below."""
    rng = random.Random(seed)
    found = []
    for number in range(num):
        cost = rng.choice((0.0, round(rng.uniform(-0.02, 0.4), 3)))
        risk, reach = round(rng.uniform(0.001, 1.0) ** 2, 4), rng.choice((0.0, 0.01, 0.1))
        found.append(
            point(
                number,
                name=f"point {number}",
                mechanism=rng.choice(MECHANISMS),
                cost=Measure(value=cost, lower=cost - reach, upper=cost + reach),
                risk=Measure(value=risk, lower=max(0.0, risk - reach), upper=min(1.0, risk + reach)),
                basis=rng.choice(("proved", "proved", "claimed", "void")),
                measured_on=rng.choice(("data", "generated")),
                figures={OVERLOADED: rng.choice((0.0, 0.0, 0.5))},
            )
        )
    return tuple(found)


def test_a_page_is_well_formed_closed_and_complete_for_any_number_of_points():
    for num in (0, 1, 2, 200):
        found = frontier(*spread(num))
        page = check_closed(frontier_page(found), scripts=2)
        assert len(page.having("data-point")) == num == len(page.data["points"])
        assert sum(name.startswith("policy-") and name[7:].isdigit() for name in page.having("id")) == num
        assert all(item.name in page.text for item in found.points)
        for name in ("x", "y", "x1", "x2", "y1", "y2"):
            assert all(math.isfinite(float(value.rstrip("%"))) for value in page.having(name))
    script = resources.files("dunnage.showing").joinpath("templates", "frontier.js").read_text("utf-8")
    assert script.startswith('"use strict";')
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("):
        assert unsafe not in script
    assert "</" not in script


def test_hostile_words_stay_words_everywhere():
    words = dict.fromkeys(("name", "mechanism", "guarantee"), HOSTILE)
    more = {"parameters": {"law": HOSTILE, HOSTILE: [HOSTILE]}, "plan": {HOSTILE: HOSTILE}, "figures": {HOSTILE: 1.0}}
    names = ("dataset", "cost_unit", "cost_name", "risk_name", "cost_baseline", "goal", "policy")
    found = frontier(
        point(basis="claimed", **words, **more),
        **dict.fromkeys(names, HOSTILE),
        says=(HOSTILE, f"WARNING: {HOSTILE}", HOSTILE),
        failed=(Failure(name=HOSTILE, why=HOSTILE),),
        software=Software(dunnage=HOSTILE),
    )
    text = frontier_page(found)
    page = Page(text)
    assert len(page.scripts) == 2
    assert "img" not in [tag for tag, _ in page.tags]
    assert "<script>alert" not in text
    assert page.data["points"][0]["name"] == HOSTILE
    assert page.text.count("{{ 7 * 7 }}") > 10
    ElementTree.fromstring(frontier_figure(found))


def test_without_its_script_a_page_shows_the_recommended_point_and_hides_what_would_do_nothing():
    page = Page(frontier_page(frontier(point(0, 0.04, 0.3), point(1, 0.1, 0.1), point(2, 0.2, 0.35))))
    assert '[mechanism] name = "partition" k = 2' in page.text
    assert all("disabled" in attrs for tag, attrs in page.tags if tag == "button" and "data-mechanism" in attrs)
    scripted = [attrs for _, attrs in page.tags if "data-script" in attrs]
    assert (len(scripted), all("hidden" in attrs for attrs in scripted)) == (5, True)
    assert re.search(r"partition k=2, sealed plan: 4 % .*30 % ", page.text)  # what a mouse is told
    classes = page.having("class")
    assert sum("policy look-0 faded" in names for names in classes) == 1
    assert [names for names in classes if re.match(r"limit limit-", names)] == ["limit limit-x", "limit limit-y off"]


def test_warnings_failures_and_nothing_to_recommend_are_told():
    says = ("Recommended: this.", "Choosing is itself not private.", "WARNING: covered by no epsilon.", "Five draws.")
    failed = (Failure(name="partition k=500", why="Too few records."),)
    text = frontier_page(frontier(point(), says=says, failed=failed))
    assert f'<p class="alert claimed">{says[1]}</p>' in text
    assert f'<p class="alert void">{says[2]}</p>' in text
    assert f"<li>{says[3]}</li>" in text
    assert "partition k=500 Too few records." in Page(text).text
    void = Page(frontier_page(frontier(point(basis="void"))))
    assert void.data["recommended"] is None
    assert "spread choice off" in void.having("class")
    beaten = frontier(point(0), point(1))
    for item in beaten.points:
        object.__setattr__(item, "dominated", True)
    Page(frontier_page(beaten))
    assert "0 of " in frontier_figure(beaten)
    assert "99.9 %" in Page(frontier_page(frontier(point(risk=0.99995)))).text  # nearly sure is not sure
    assert share_text(1380.0 / 100) == "1,380\N{NO-BREAK SPACE}%"
    assert "e" not in share_text(3e-8)
    assert share_text(1.0) != share_text(0.99995)


def test_the_table_of_each_point_can_be_copied_into_a_policy():
    page = Page(frontier_page(frontier(point(0, parameters={"k": 5, "statistic": "mean", "shares": [0.5, 0.5]}))))
    table = tomllib.loads(page.data["points"][0]["toml"])
    assert table == {"mechanism": {"name": "partition", "k": 5, "statistic": "mean", "shares": [0.5, 0.5]}}
    # A policy for devices keeps what else it says of a kind of report.
    policy = '[mechanisms.places]\nname = "local-location"\nattributes = ["place"]\nepsilon = 2.0\nmethod = "auto"\n'
    kept = {"name": "local-location", "attributes": ["place"], "method": "auto"}
    for number, more in ((1, {}), (2, {"levels": 3})):
        parameters = {"epsilon": float(number), "method": "auto", **more}
        own = point(name=f"places: auto epsilon={number}", mechanism="local-location", parameters=parameters)
        text = Page(frontier_page(frontier(own, policy=policy))).data["points"][0]["toml"]
        assert tomllib.loads(text) == {"mechanisms": {"places": {**kept, "epsilon": float(number)}}}
        assert ("levels = 3" in text) == (number == 2)


def test_every_mechanism_has_a_colour_and_a_shape_that_no_other_has():
    names = [*MECHANISMS[2:], "noisy-counts", "local-numeric", *MECHANISMS[:2], *(f"other {n}" for n in range(20))]
    looks = looks_of(point(name=name, mechanism=name) for name in names)
    assert len({(look % 6, look % len(SHAPES)) for look in looks.values()}) == len(names)
    few = looks_of([point(mechanism="full-domain"), point(mechanism="partition")])
    assert few["partition"] == looks["partition"] == 0
    assert few["full-domain"] == looks["full-domain"] == 1


def test_marks_arrows_and_lines_are_named_where_they_are():
    alike = frontier(point(0, measured_on="generated"), point(1, 0.05, 0.3, measured_on="generated"))
    mixed = frontier(point(0), point(1, 0.05, 0.3, measured_on="generated"))
    assert "hollow" not in frontier_figure(alike)
    assert frontier_figure(mixed).count('hollow"') == 1
    for risk_of_chance in (0.01, 0.0):
        figure = frontier_figure(frontier(point(0, 0.04, 0.3), risk_of_chance=risk_of_chance))
        assert ('class="chance"' in figure) == (risk_of_chance > 0)
    near, far = (frontier(point(0, 0.04, low), point(1, 0.1, high)) for low, high in ((0.2, 0.5), (0.1, 0.8)))
    assert [frontier_figure(found).count("beyond-y") for found in (near, far)] == [0, 1]
    costly = frontier(point(0, 0.05, 0.1), point(1, 9.0, 0.5))  # beaten by far, it does not squeeze the rest
    assert frontier_figure(costly).count("beyond-x") == 1
    assert Page(frontier_page(costly)).data["axes"]["x"]["high"] < 0.2


@pytest.mark.parametrize("num", [0, 1, 40, 200])
def test_the_figure_is_one_element_without_script(num):
    found = frontier(*spread(num, seed=num))
    figure = ElementTree.fromstring(frontier_figure(found))
    assert (figure.tag, figure.get("role")) == ("svg", "img")
    assert not [item for item in figure.iter() if item.tag == "script" or any(key[:2] == "on" for key in item.attrib)]
    assert len([item for item in figure.iter("g") if "policy" in (item.get("class") or "").split()]) == num
    words = {"".join(item.itertext()) for item in figure.iter("text")}
    assert words >= {item.mechanism for item in found.points}
    if found.choice is not None:
        assert ("recommended" if found.meets_limit else "closest") in words


def test_what_cannot_be_recommended_is_crossed_out_and_not_on_the_line():
    mended = point(1, 0.0, 0.01, figures={OVERLOADED: 0.9})
    weak, void = point(2, 0.0, 0.95), point(3, 0.0, 0.02, basis="void")
    good, better = point(4, 0.04, 0.3), point(5, 0.2, 0.1)

    def stairs(text):
        return [item for item in ElementTree.fromstring(text).iter("line") if "stair" in (item.get("class") or "")]

    figure = frontier_figure(frontier(good, mended, better))
    assert figure.count('class="cross') == 2  # with that of the legend
    assert len(stairs(figure)) == len(stairs(frontier_figure(frontier(good, better)))) == 2
    for points, crossed in (((good, weak), 1), ((good, void), 1), ((good, weak, void), 2), ((mended,), -1)):
        assert frontier_figure(frontier(*points)).count('class="cross') == crossed + 1, points
    assert 'class="cross' not in frontier_figure(frontier(good, weak, limit=Limit(max_risk=0.99)))
    reasons = [why_aside(own, frontier(good, own)) for own in (mended, weak, void)]
    assert len({*reasons, why_aside(good, frontier(good, weak))}) == 4
    assert Page(frontier_page(frontier(good, mended, better))).data["points"][1]["label"].endswith(reasons[0])


values = st.floats(0, 10) | st.floats(0, 1e-7) | st.just(0.0) | st.floats(-1, 0)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(values, values, values, st.booleans()), max_size=5), st.lists(values, max_size=2), st.booleans()
)
def test_axes_place_everything_inside_in_order(measures, others, may_be_log):
    given = [(Measure(value=b, lower=a, upper=c), best) for *ends, best in measures for a, b, c in [sorted(ends)]]
    axis = Axis.of(given, others, may_be_log=may_be_log)
    assert axis.low < axis.high
    assert 0 < axis.floor < axis.most
    inside = sorted([*others, *(measure.value for measure, _ in given)])
    places = [axis.share(value) for value in inside]
    assert places == sorted(places)
    assert all(0 <= place <= 1 for place in places)
    for log in (False, True):
        ticks = axis.ticks(log=log, most=5)
        assert 1 <= len(ticks) <= 13
        assert ticks == sorted(set(ticks))
    for measure, best in given:
        assert not (best and axis.is_beyond(measure.value))


def test_asked_limits_stand_in_the_fields():
    def fields(found):
        return {a["id"]: a["value"] for tag, a in Page(frontier_page(found)).tags if a.get("type") == "number"}

    assert fields(frontier(point(), limit=Limit(max_cost=0.07))) == {"most-cost": "7", "most-risk": ""}
    assert fields(frontier(point(), limit=Limit(max_risk=0.05))) == {"most-cost": "", "most-risk": "20"}
    coin = frontier(point(), limit=Limit(max_risk=0.6), risk_of_chance=0.5)
    assert fields(coin) == {"most-cost": "", "most-risk": "60"}


def test_the_script_picks_what_the_advice_would_choose():
    script = resources.files("dunnage.showing").joinpath("templates", "frontier.js").read_text("utf-8")
    (choosing,) = re.findall(r"^  function choose\(.*?^  }$", script, re.DOTALL | re.MULTILINE)
    engine, rng, wanted, cases = quickjs.Context(), random.Random(5), [], []
    for seed in range(30):
        points = spread(rng.randint(1, 12), seed=seed)
        data = Page(frontier_page(frontier(*points))).data
        for cost, risk in ((0.05, None), (None, 0.05), (0.1, 0.3), (0.0, None), (None, 0.5), (0.3, 0.1)):
            hidden = rng.sample(MECHANISMS, rng.choice((0, 0, 1, 3)))
            limit = Limit(max_cost=cost, max_risk=risk)
            shown = [item for item in ranking(points, limit) if item.point.mechanism not in hidden]
            choice = first_within(shown, limit)
            cases.append({"data": data, "hidden": hidden, "limit": {"cost": cost, "risk": risk}})
            wanted.append([choice.point.name if choice.point else None, choice.meets_limit])
    engine.eval(choosing)
    engine.eval(
        "globalThis.chosen = (text) => JSON.stringify(JSON.parse(text).map(({data, hidden, limit}) => {"
        "const found = choose(data, new Set(hidden), limit); return [found.point?.name ?? null, found.meets]; }));"
    )
    assert json.loads(engine.get("chosen")(json.dumps(cases))) == wanted
