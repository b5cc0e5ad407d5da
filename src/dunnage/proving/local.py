# SPDX-License-Identifier: Apache-2.0
"""Devices: what one report, and a lifetime of reports, really reveal.

Nothing that a mechanism says about itself is taken on trust. What one report reveals is measured in three ways:

- from the *exponents* of its channel, over every output and every input, in fractions;
- by *replaying* its own ``perturb`` with every random decision taken all ways, each with its exact probability, which
  checks the code that draws;
- from *draws* with real entropy, which must follow the replayed law, or are otherwise taken as those of a closed box.

The largest of these is compared with the promise, and with what the vehicle's allowance is charged. Where a loss is
known both from exponents and by replaying, the two must be the same: what a mechanism says about itself is not enough
to convict it either.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dunnage.devices.allowance import NO_CAP, Allowance
from dunnage.devices.client import Client, mechanism_of
from dunnage.devices.numbers import LiteralPiecewise, LocalNumeric
from dunnage.devices.paths import LocalTrajectory
from dunnage.devices.places import LocalLocation, enumerated_loss
from dunnage.devices.subjects import Grid, Quantity, Tier
from dunnage.devices.task import SECONDS_PER_DAY, Limits, Purpose, Schedule, Task
from dunnage.errors import AllowanceError, ParameterError
from dunnage.exact import bounded_text, exact, shown_number
from dunnage.model.guarantees import WithinCluster
from dunnage.noise.source import Noise
from dunnage.proving.replay import Outcomes, largest, loss_between, replay_draws
from dunnage.proving.statistical import UNLIKELY, agrees, lower_bound
from dunnage.proving.verdict import FAILS, HOLDS, UNBOUNDED, VOID, Checks, Verdict, judge, within

_CONFIDENCE = 1 - UNLIKELY  # of a bound from draws: a correct check must not fail by chance
_DIGITS = 9  # of a replayed loss: paths that were not followed affect none of them
_SAME = 1e-8  # how far apart a loss from exponents and a replayed one may be
_MIN_MOVED = 1e-6  # how likely a displacement must be, relative to none, to compare its exponent with the code
_FURTHEST = 16  # displacements by up to this many columns and rows are compared for the planar law
ANY, WITHIN, ACROSS = "any two values", "values of one area", "values of two areas"


@dataclass(frozen=True, kw_only=True)
class DeviceSetting:
    mechanism: Any  # anything with `promise`, `perturb`, `channel` and `true_loss`
    variant: str  # what is special about it
    values: Sequence[Any]  # private values: `perturb` is replayed for all, and sampled for the first and the last
    expected: str = HOLDS  # the expected verdict
    scope: str = ANY  # between which values the loss is measured
    tier: str = "all"
    replays: bool = True  # whether `perturb` itself can be replayed; if not, it is treated as a closed box
    law_inputs: int = 0  # replay the law of the oracle on this many inputs, where its own are too many
    few_inputs: int = 0  # enumerate the outputs of the oracle on this many inputs, where its own are too many
    most_draws: int | None = None  # draws of one round of a law that may refuse
    num_drawn: int = 2_000  # reports of either value
    most_pairs: int = 60_000  # pairs of an input and an output that are enumerated
    witnesses: int = 0  # reports of the last value that are examined, where outputs are too many to enumerate
    view: Callable[[bytes], Hashable] = bytes  # what is read of a closed box's report: all, or less if outputs are many
    distance: Callable[[Any, Any], float] | None = None  # of two values in km, if the promise is for one kilometre

    def draw(self, value: Any, noise: Noise) -> bytes:
        payload: bytes = self.mechanism.perturb(value, tier=self.tier, noise=noise)
        return payload


class _Loss(NamedTuple):
    loss: float | str
    how: str
    problem: str = ""
    confidence: float | None = None


def examine(setting: DeviceSetting) -> Verdict:
    losses = list(_from_exponents(setting))
    losses += _from_replays(setting, losses[:1])
    for measure in (_from_law, _from_displacements, _from_draws):
        losses += measure(setting)
    worst = largest(each.loss for each in losses)
    measured = worst if isinstance(worst, str) else round(worst, _DIGITS)
    # The claim in the scope of the setting, and what the certificate states as true.
    promise, mechanism = setting.mechanism.promise(), setting.mechanism
    claimed, stated = (
        UNBOUNDED if isinstance(one, WithinCluster) and setting.scope != WITHIN else float(one.epsilon)
        for one in (promise.guarantee, promise.holds or promise.guarantee)
    )
    if len(mechanism.levels) > 1:  # the promise is for the tier that reveals most
        claimed = stated = float(next(level for level in mechanism.levels if level.name == setting.tier).epsilon)
    # What one report charges to the allowance of a vehicle; with ``planar`` that is for the whole box.
    loss = mechanism.true_loss(setting.tier)
    charged = UNBOUNDED if loss is None or setting.distance is not None else float(loss)
    # Nothing may exceed the smaller of what is stated and what is charged.
    holds = charged if within(charged, stated, "epsilon") else stated
    exactly = any(each.confidence is None and each.loss == worst for each in losses)
    problems = [each.problem for each in losses if each.problem]
    if within(measured, stated, "epsilon") and not within(measured, charged, "epsilon"):
        problems.append(f"its vehicle is charged less for it, epsilon {charged:.4g}")
    return Verdict.of(
        mechanism.name,
        setting.variant,
        claimed,
        measured,
        basis=promise.basis,
        holds=None if holds == claimed else holds,
        confidence=None if exactly else _CONFIDENCE,
        method="; ".join(each.how for each in losses),
        expected=setting.expected,
        sentence=_sentence(setting, claimed, stated, measured, problems),
        problems=problems,
    )


def _from_exponents(setting: DeviceSetting) -> Iterator[_Loss]:
    """Compare every output and every input of the channel, or every input in scope."""
    channel = setting.mechanism.channel(setting.tier)
    if setting.few_inputs:
        channel = replace(setting.mechanism.oracle(setting.tier), num_inputs=setting.few_inputs)
    try:
        symbols = channel.symbols()
    except ParameterError:
        return
    inputs: Sequence[int] = range(channel.num_inputs)
    if setting.scope != ANY:
        inputs = sorted({setting.mechanism.index(value) for value in setting.values})
    if len(symbols) * len(inputs) > setting.most_pairs:
        return
    how = f"all {len(symbols):,} outputs of {len(inputs)} inputs enumerated"
    yield _Loss(_loss_of(channel, symbols, inputs), how)


def _loss_of(channel: Any, symbols: Sequence[int] | None = None, inputs: Sequence[int] | None = None) -> float | str:
    loss = enumerated_loss(channel, symbols, inputs)
    return UNBOUNDED if loss is None else float(loss)


def _difference(stated: float | str, replayed: float | str) -> str:
    """Return the problem if the exponents of a law and its code are not those of one law."""
    texts = (isinstance(stated, str), isinstance(replayed, str))
    if stated == replayed if any(texts) else abs(float(stated) - float(replayed)) <= _SAME:
        return ""
    words = [loss if isinstance(loss, str) else f"epsilon {loss:.4g}" for loss in (stated, replayed)]
    return f"its code does not follow the law it states: {words[1]} by its decisions, {words[0]} by its exponents"


def _from_replays(setting: DeviceSetting, stated: Sequence[_Loss]) -> Iterator[_Loss]:
    """Replay ``perturb`` for each value, and compare real draws of two of them with the resulting law."""
    if not setting.replays:
        return
    draws = [partial(setting.draw, value) for value in setting.values]
    laws = [replay_draws(draw, most_draws=setting.most_draws) for draw in draws]
    losses = []
    for (one, law), (other, its) in itertools.combinations(zip(setting.values, laws, strict=True), 2):
        loss = loss_between(law, its)
        if setting.distance is not None and not isinstance(loss, str):
            apart = setting.distance(one, other)
            loss = loss / apart if apart else (0.0 if loss < 1e-9 else UNBOUNDED)
        losses.append(loss)
    loss = largest(losses)
    problem = _difference(stated[0].loss, loss) if stated else ""
    yield _Loss(loss, f"its code replayed for {len(laws)} values, every decision all ways", problem)
    yield _real_reports([(draws[0], laws[0]), (draws[-1], laws[-1])], setting.num_drawn)


def _from_law(setting: DeviceSetting) -> Iterator[_Loss]:
    """Replay the law of the oracle on few inputs, and compare real draws with it."""
    if not setting.law_inputs:
        return
    law = replace(setting.mechanism.oracle(setting.tier), num_inputs=setting.law_inputs)
    draws = [partial(_symbol, law, at) for at in range(setting.law_inputs)]
    laws = [replay_draws(draw) for draw in draws]
    loss = _worst(laws)
    problem = _difference(_loss_of(law), loss)
    yield _Loss(loss, f"its law on {setting.law_inputs} inputs replayed, every decision all ways", problem)
    yield _real_reports(list(zip(draws[:2], laws, strict=False)), setting.num_drawn)


def _symbol(law: Any, index: int, noise: Noise) -> int:
    return int(law.perturb(index, noise))


def _worst(laws: Sequence[Outcomes]) -> float | str:
    return largest(loss_between(one, other) for one, other in itertools.combinations(laws, 2))


def _real_reports(draws: Sequence[tuple[Callable[[Noise], Hashable], Outcomes]], num: int) -> _Loss:
    noise = Noise()
    pvalues = [agrees(Counter(draw(noise) for _ in range(num)), law.chances) for draw, law in draws]
    agree = len(pvalues) * min(pvalues) > UNLIKELY
    problem = "" if agree else "real reports do not follow the law of its code"
    return _Loss(0.0, f"{num * len(draws):,} real reports {'' if agree else 'do not '}follow that law", problem)


def _from_displacements(setting: DeviceSetting) -> Iterator[_Loss]:
    """Measure what a planar law loses for each kilometre, before anything is moved to the border of the box."""
    if setting.distance is None:
        return
    law = setting.mechanism.channel(setting.tier)
    reach = range(-_FURTHEST, _FURTHEST)
    exponents = {at: law.displacement_exponent(*at) for at in itertools.product(reach, repeat=2)}
    width, height = law.grid.pitch_km

    def per_km(one: tuple[int, int], other: tuple[int, int]) -> float:
        apart = ((one[0] - other[0]) * width) ** 2 + ((one[1] - other[1]) * height) ** 2
        return math.sqrt((exponents[one] - exponents[other]) ** 2 / apart)

    steps = ((1, 0), (0, 1), (1, 1), (1, -1))
    beside = [(at, (at[0] + across, at[1] + along)) for at in exponents for across, along in steps]
    pairs = [*((at, (0, 0)) for at in exponents if any(at)), *(pair for pair in beside if pair[1] in exponents)]
    moves = replay_draws(law.displacement, most_draws=setting.most_draws).chances
    still = moves[0, 0]
    followed = all(
        abs(math.log(moves[at] / still) - exponents[at]) <= _SAME
        for at in exponents
        if exponents[at] > math.log(_MIN_MOVED)
    )
    problem = "" if followed else "its code does not move places by the law it states"
    loss = max(itertools.starmap(per_km, pairs))
    yield _Loss(loss, f"exponents of {len(exponents):,} displacements, and its code replayed", problem)


def _from_draws(setting: DeviceSetting) -> Iterator[_Loss]:
    """Examine real reports of the last value, or treat the mechanism as a closed box and bound its loss from below."""
    noise = Noise()
    if setting.witnesses:  # how much less likely the reports of the last value are for the first input
        channel = setting.mechanism.channel(setting.tier)
        payloads = {setting.draw(setting.values[-1], noise) for _ in range(setting.witnesses)}
        symbols = [int.from_bytes(payload + b"\x01", "little") for payload in payloads]
        loss = _loss_of(channel, symbols, (0, channel.num_inputs - 1))
        yield _Loss(loss, f"exact odds of {len(symbols):,} different real reports")
    elif not setting.replays:
        num = setting.num_drawn
        ends = (setting.values[0], setting.values[-1])
        draws = [[setting.view(setting.draw(value, noise)) for _ in range(num)] for value in ends]
        bound = lower_bound(*draws, confidence=_CONFIDENCE)
        how = f"at least {bounded_text(exact(bound.epsilon), up=False)} from {2 * num:,} reports of a closed box"
        yield _Loss(bound.epsilon, how, confidence=bound.confidence)


def _sentence(
    setting: DeviceSetting, claimed: float | str, bound: float | str, measured: float | str, problems: Sequence[str]
) -> str:
    """Say the result in one sentence: the loss first, then any other problem."""
    each = " per kilometre" if setting.distance is not None else ""
    stated = "no bound" if isinstance(claimed, str) else f"epsilon {claimed:g}{each}"
    lost = "" if isinstance(measured, str) else f"One report reveals epsilon {measured:.4g}{each}"
    if isinstance(measured, str):
        claim = "as stated" if isinstance(claimed, str) else f"where {stated} is claimed"
        meaning = f"One report can distinguish {setting.scope} for certain, {claim}"
    elif not within(measured, bound, "epsilon"):
        meaning = f"{lost} between {setting.scope}, more than the epsilon {bound:g}{each} that is stated"
    elif judge(measured, claimed, "epsilon") == FAILS:
        meaning = f"{lost} between {setting.scope}, where {stated} is claimed"
    else:
        meaning = f"{lost} at most between {setting.scope}; {stated} is stated"
    return f"{meaning}; but {', and '.join(problems)}." if problems else f"{meaning}."


_TIERS = (Tier(name="basic", epsilon=Fraction(2)), Tier(name="strict", epsilon=Fraction(1, 2)))


def _examined(kind: Any, variant: str, values: Sequence[Any], given: dict[str, Any]) -> Verdict:
    """Examine a setting; names decide which arguments go to the setting and which to the mechanism."""
    own = {name: given.pop(name) for name in list(given) if name in DeviceSetting.__dataclass_fields__}
    if "tiers" not in given:
        given.setdefault("epsilon", 1)
    return examine(DeviceSetting(mechanism=kind(**given), variant=variant, **{"values": values, **own}))


def _quantities(num: int, steps: int, missing: str = "middle") -> tuple[Quantity, ...]:
    low, high = Fraction(-1), Fraction(1)
    return tuple(Quantity(name=f"number {at}", low=low, high=high, steps=steps, missing=missing) for at in range(num))


def _corners(num: int, *, more: Sequence[Any] = ()) -> list[Any]:
    first, *others = itertools.product((-1, 1), repeat=num)
    return [first, *more, *others]


def _numbers(variant: str, num: int, steps: int, missing: str = "middle", **given: Any) -> Verdict:
    values = _corners(num, more=[(Fraction(3, 7),) * num, (None,) * num])
    given["quantities"] = _quantities(num, steps, missing)
    return _examined(LocalNumeric, variant, values, given)


def _points(steps: int) -> list[tuple[Fraction]]:
    return [(Fraction(at, steps),) for at in range(-steps, steps + 1)]


def check_numeric(long: bool) -> Iterator[Verdict]:
    yield _numbers("method hybrid", 1, 2, values=[(-1,), (Fraction(1, 3),), (None,), *_points(2)])
    yield _numbers("method hybrid, 2 numbers", 2, 1, epsilon="0.5")
    yield _numbers("method published-hybrid", 1, 2, epsilon=1, method="published-hybrid")
    yield _numbers("method hybrid, missing reported", 1, 1, "symbol")
    yield _numbers("method piecewise, 2 numbers", 2, 1, method="piecewise")
    yield _numbers("method duchi", 1, 3, method="duchi")
    yield _numbers("method duchi, 2 numbers", 2, 1, method="duchi", values=_corners(2))
    yield _numbers("method duchi, 3 numbers", 3, 1, method="duchi", values=[(-1, -1, -1), (0, 1, 1), (1, 1, 1)])
    yield _numbers("method harmony, 3 numbers", 3, 1, method="harmony")
    yield _numbers("method laplace", 1, 2, epsilon=2, method="laplace")
    yield _numbers("method laplace, 2 numbers", 2, 1, method="laplace", values=_corners(2))
    yield _numbers("method square-wave, 2 of 3 numbers", 3, 1, epsilon=5, method="square-wave")
    yield _numbers("method designed", 1, 1, epsilon=1, method="designed", replays=False, num_drawn=6_000)
    yield _numbers("method warner, 2 numbers", 2, 1, method="warner", values=_corners(2))
    for tier in _TIERS:
        yield _numbers(f"tier {tier.name}", 1, 1, tiers=_TIERS, tier=tier.name)
    # The published e-L_LDP for one number, for which its claim is true, and for several.
    name = "as published (e-L_LDP)"
    form: Any = {"as_published": True}
    yield _numbers(f"{name}, 1 number", 1, 1, **form)
    form["expected"] = FAILS
    yield _numbers(f"{name}, 2 numbers", 2, 1, values=[(-1, -1), (1, 1)], **form)
    for num, witnesses in ((3, 400), (5, 1_000))[: 2 if long else 1]:
        form |= {"values": [(-1,) * num, (1,) * num], "replays": False, "witnesses": witnesses}
        yield _numbers(f"{name}, {num} numbers", num, 1, **form)
    if long:
        for method, epsilon in itertools.product(("hybrid", "piecewise", "square-wave", "laplace"), ("0.25", "3")):
            given: dict[str, Any] = {"method": method, "epsilon": epsilon, "num_drawn": 20_000}
            yield _numbers(f"method {method}, epsilon {epsilon}, 9 points", 1, 4, values=_points(4), **given)
        yield _numbers("method duchi, 4 numbers", 4, 1, epsilon=2, method="duchi", values=[(-1,) * 4, (1,) * 4])
        yield _numbers("method hybrid, 2 of 3 numbers", 3, 1, epsilon=5, values=[(-1,) * 3, (1, 0, -1), (1,) * 3])
    # L-PM as its algorithm is printed: mostly noise, so it reveals less than it claims.
    law = LiteralPiecewise(epsilon=Fraction(1), steps=2)
    loss = _worst([replay_draws(partial(_symbol, law, at)) for at in range(law.num_inputs)])
    yield Verdict.of(
        LocalNumeric.name,
        "Algorithm 1 as printed (L-PM)",
        1.0,
        loss if isinstance(loss, str) else round(loss, _DIGITS),
        method=f"its code replayed for {law.num_inputs} inputs, every decision all ways",
        sentence="As printed, it reveals less than it claims, and reports numbers as about a quarter of what they are.",
        basis="claimed",
    )
    purpose = Purpose(
        name="numbers",
        mechanism=LocalNumeric.name,
        tiers=(Tier(name="all", epsilon=Fraction(1, 4)),),
        quantities=_quantities(2, 1),
        parameters={"as_published": True},
    )
    yield from examine_lifetime(purpose, (-1, 1), loss=2 * Fraction(1, 4))
    yield examine_window(replace(purpose, quantities=_quantities(1, 1), parameters={}), _points(1))


_BOX = (Fraction("103.9"), Fraction("30.5"), Fraction("104.2"), Fraction("30.8"))
_SMALL, _AREAS = Grid(box=_BOX, levels=2), Grid(box=_BOX, levels=2, area_levels=2)
_MIDDLE = Grid(box=_BOX, levels=3, area_levels=2)
_AWAY = (0.0, 0.0)
_UNARY = ("symmetric-unary", "optimised-unary")
_HALF = (Tier(name="all", epsilon=Fraction(1, 2)),)


def _centres(grid: Grid) -> list[tuple[float, float]]:
    return [grid.centre(cell) for cell in range(grid.num_cells)]


def _places(variant: str, grid: Grid, **given: Any) -> Verdict:
    return _examined(LocalLocation, variant, [*_centres(grid), _AWAY], {"grid": grid, **given})


def _unary(long: bool) -> dict[str, Any]:
    """Return how a unary encoding is examined: it has too many bits to replay, except for few inputs."""
    return {"replays": False, "law_inputs": 3 if long else 2, "num_drawn": 40_000 if long else 6_000}


def check_location(long: bool) -> Iterator[Verdict]:
    yield _places("method auto", _SMALL, epsilon=2)
    yield _places("method randomised-response", _SMALL, method="randomised-response")
    for method in _UNARY:
        yield _places(f"method {method}", _SMALL, method=method, **_unary(long))
    yield _places("method hadamard", _SMALL, method="hadamard")
    for method in ("best", "subset-selection", "projective"):
        yield _places(f"method {method}", _SMALL, epsilon="0.5", method=method)
    yield _places("method hadamard, epsilon 4", _SMALL, epsilon=4, method="hadamard")
    yield _places("method disk", _SMALL, epsilon="0.5", method="disk")
    yield _planar(_SMALL, "0.1")
    for tier in _TIERS:
        yield _places(f"tier {tier.name}", _SMALL, tiers=_TIERS, tier=tier.name)
    inside = [_MIDDLE.centre(cell) for cell in range(_MIDDLE.num_inner)]
    both = [inside[0], _MIDDLE.centre(_MIDDLE.num_cells - 1)]
    yield _places("area in clear, within it", _MIDDLE, area_in_clear=True, values=inside, scope=WITHIN)
    yield _places("area in clear, across areas", _MIDDLE, area_in_clear=True, values=both, scope=ACROSS, expected=VOID)
    published: dict[str, Any] = {"as_published": True, "expected": FAILS}
    yield _places("as published (L-RR), one area", _SMALL, **published, **_unary(long))
    one = [_AREAS.centre(0), _AWAY]  # the first area has one place, and counts everything outside
    yield _places("as published (e-LT_LDP), within the area", _AREAS, values=one, scope=WITHIN, **published)
    published |= {"values": [_AREAS.centre(0), _AREAS.centre(3)], "replays": False}
    yield _places("as published (e-LT_LDP), across areas", _AREAS, scope=ACROSS, **published)
    if long:
        for method, epsilon in itertools.product(("randomised-response", "hadamard"), ("0.25", "1", "4")):
            given: dict[str, Any] = {"method": method, "epsilon": epsilon, "num_drawn": 20_000}
            yield _places(f"method {method}, epsilon {epsilon}, 16 places", _MIDDLE, **given)
        yield _planar(_MIDDLE, "0.2")
    purpose = Purpose(name="places", mechanism=LocalLocation.name, tiers=_HALF, grid=_SMALL)
    yield from examine_lifetime(purpose, _SMALL.centre(0), loss=Fraction(1, 2))
    yield examine_window(purpose, _centres(_SMALL))


def _planar(grid: Grid, epsilon: str) -> Verdict:
    width, height = (float(side) for side in grid.pitch_km)

    def distance(one: Any, other: Any) -> float:
        (x, y), (to_x, to_y) = (grid.column_row(grid.cell(*place)) for place in (one, other))
        return math.hypot((x - to_x) * width, (y - to_y) * height)

    rounds: dict[str, Any] = {"most_draws": 3, "distance": distance}  # columns, rows, and whether to keep them
    name = f"method planar, {grid.num_cells} places, per km"
    return _places(name, grid, epsilon=epsilon, method="planar", values=_centres(grid), **rounds)


def _paths(variant: str, grid: Grid, steps: int = 2, **given: Any) -> Verdict:
    values = [*itertools.product(_centres(grid), repeat=steps), None]
    return _examined(LocalTrajectory, variant, values, {"grid": grid, "steps": steps, **given})


def check_trajectory(long: bool) -> Iterator[Verdict]:
    yield _paths("method auto", _SMALL, epsilon=3)
    for method in ("best", "subset-selection", "projective"):
        yield _paths(f"method {method}", _SMALL, epsilon=3, method=method)
    for method in ("randomised-response", "hadamard"):
        yield _paths(f"method {method}", _SMALL, method=method)
    for method in _UNARY:
        # Of 17 bits, a closed box shows those of the two paths.
        ends = {"values": [_some(2)[0], _some(2)[-1]], "view": _two_bits, "few_inputs": 8, "law_inputs": 2}
        yield _paths(f"method {method}", _SMALL, method=method, **(_unary(long) | ends))
    few: Any = {"method": "randomised-response"}
    yield _paths("method randomised-response, 3 steps", _SMALL, 3, values=_some(3), **few)
    for tier in _TIERS:
        yield _paths(f"tier {tier.name}", _SMALL, tiers=_TIERS, tier=tier.name, values=_some(2), **few)
    inner = [_MIDDLE.centre(cell) for cell in range(_MIDDLE.num_inner)]
    inside = list(itertools.product(inner, repeat=2))
    across = [inside[0], [inner[0], _MIDDLE.centre(_MIDDLE.num_cells - 1)]]
    few["area_in_clear"] = True
    yield _paths("areas in clear, within them", _MIDDLE, values=inside, scope=WITHIN, **few)
    yield _paths("areas in clear, across areas", _MIDDLE, values=across, scope=ACROSS, expected=VOID, **few)
    # The published forms within one sequence of areas, and across areas, with one place in each area.
    for form, steps in itertools.product(("product", "qlp", "qjlp"), (2, 3)):
        given: dict[str, Any] = {"as_published": True, "method": form, "expected": FAILS, "replays": False}
        given |= {"num_drawn": 20_000 if long else 2_500}
        first, last, missing = ([place] * steps for place in (_AREAS.centre(0), _AREAS.centre(3), _AWAY))
        name = f"as published ({form}), {steps} steps"
        # A missing place counts for the first area, and so for the first sequence of areas.
        law: Any = {"law_inputs": 2} if steps == 2 else {}
        yield _paths(f"{name}, within areas", _AREAS, steps, values=[first, missing], scope=WITHIN, **law, **given)
        if steps == 2:
            yield _paths(f"{name}, across areas", _AREAS, steps, values=[first, last], scope=ACROSS, **given)
    purpose = Purpose(name="paths", mechanism=LocalTrajectory.name, tiers=_HALF, grid=_SMALL, steps=2)
    yield from examine_lifetime(purpose, [_SMALL.centre(0), _SMALL.centre(1)], loss=Fraction(1, 2))
    yield examine_window(replace(purpose, parameters={"method": "randomised-response"}), _some(2))


def _some(steps: int) -> list[Any]:
    places = _centres(_SMALL)
    return [[places[0]] * steps, [places[0], *places[2 : steps + 1]], None, [places[3]] * steps]


def _two_bits(payload: bytes) -> Hashable:
    bits = int.from_bytes(payload, "little")
    return bits & 1, bits >> _SMALL.num_cells**2 - 1 & 1


# A day and a lifetime of reports
_NUM_REPORTS, _PER_DAY, _NUM_DAYS = 5, 2, 5
_WINDOW = 3
_MIDNIGHT = 20_000 * SECONDS_PER_DAY
_SCHEDULE = Schedule(slots_per_day=_PER_DAY, slot_minutes=720, lateness_minutes=720)
Opening = Callable[..., Allowance]


def examine_lifetime(
    purpose: Purpose, value: Any, *, loss: Fraction, opening: Opening = Allowance.open
) -> Iterator[Verdict]:
    """Check that a vehicle falls silent when its allowance is used up, and reveals no more than that until then."""
    # Its device restarts between reports, tries to make each one twice, and goes on trying when nothing is left. The
    # losses of the reports that came out are then added up, for one purpose and for two at once.
    for purposes, also in (((purpose,), ""), ((purpose, replace(purpose, name="more")), ", two purposes")):
        day, lifetime = len(purposes) * _PER_DAY * loss, _NUM_REPORTS * loss
        limits = Limits(day=day, lifetime=lifetime)
        task = Task(dataset="fleet", purposes=purposes, schedule=_SCHEDULE, limits=limits)
        by_slot = _reports_by_slot(task, value, opening)
        by_day = [sum(by_slot[at : at + _PER_DAY]) for at in range(0, len(by_slot), _PER_DAY)]
        for what, reports, limit in (("day", max(by_day), day), ("lifetime", sum(by_day), lifetime)):
            measured = float(reports * loss)
            ending = ", and then falls silent" if reports * loss <= limit else ": its allowance does not stop it"
            yield Verdict.of(
                purpose.mechanism,
                f"a {what} of reports{also}",
                float(limit),
                measured,
                method=f"{reports} reports of epsilon {shown_number(loss)} each came out, of "
                f"{len(by_slot)} slots in {_NUM_DAYS} days, each requested twice, with a restart in between",
                sentence=f"In a {what} a vehicle reveals epsilon {measured:g} of {float(limit):g} allowed{ending}.",
            )


def examine_window(purpose: Purpose, values: Sequence[Any]) -> Verdict:
    """Check that a window of consecutive slots reveals no more than is stated for it."""
    schedule = replace(_SCHEDULE, window=_WINDOW)
    task = Task(dataset="fleet", purposes=(purpose,), schedule=schedule, limits=Limits(lifetime=Fraction(1000)))
    tier = purpose.tiers[0]
    one = DeviceSetting(mechanism=mechanism_of(task, purpose), variant="", values=values, tier=tier.name)
    loss = _worst([replay_draws(partial(one.draw, value)) for value in values])
    by_slot = _reports_by_slot(task, values[0], Allowance.open)
    reports = max(sum(by_slot[at : at + _WINDOW]) for at in range(len(by_slot)))
    measured = loss if isinstance(loss, str) else round(reports * loss, _DIGITS)
    return Verdict.of(
        purpose.mechanism,
        f"a window of {_WINDOW} slots",
        float(tier.epsilon),
        measured,
        method=f"{reports} reports came out in a window, the code of one replayed for {len(values)} values",
        sentence=f"Any {_WINDOW} consecutive slots reveal epsilon {measured}; {float(tier.epsilon):g} is stated.",
    )


def _reports_by_slot(task: Task, value: Any, opening: Opening) -> list[int]:
    """Count the different reports that a device makes in each slot, however often it restarts and tries."""
    num_reports = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vehicle"
        opening(path, task, enrol=True, now=_MIDNIGHT - SECONDS_PER_DAY, cap=NO_CAP, durable=False).close()
        for at in range(_NUM_DAYS * _PER_DAY):
            now, reports = _MIDNIGHT + at * SECONDS_PER_DAY // _PER_DAY + 1, set()
            for purpose, _ in itertools.product(task.purposes, range(2)):
                with opening(path, task, durable=False) as allowance:
                    try:
                        reports.add(Client(task, allowance).report(purpose.name, value, now))
                    except AllowanceError:  # it is used up, or no slot is due
                        continue
            num_reports.append(len(reports))
    return num_reports


CHECKS: Checks = {LocalNumeric: check_numeric, LocalLocation: check_location, LocalTrajectory: check_trajectory}
