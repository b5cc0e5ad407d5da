# SPDX-License-Identifier: Apache-2.0
"""The command ``advise``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dunnage.cli.shared import ForceFlag, JsonFlag, print_result, progress


def advise(
    data: Annotated[Path, typer.Argument(help="The private rows: CSV or Parquet.")],
    policy: Annotated[Path, typer.Option("--policy", help="Policy to begin with; its mechanism may be blank.")],
    goal: Annotated[str, typer.Option("--goal", help="trucks | shuttles | distortion | error: what privacy costs.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Frontier folder to make; private.")],
    capacity: Annotated[
        list[str] | None, typer.Option(help="Trucks: what one holds, 500kg or volume=9; repeatable.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Trucks: public column whose values never share one.")] = None,
    city: Annotated[Path | None, typer.Option(help="Shuttles: city folder or GTFS feed.")] = None,
    period: Annotated[str | None, typer.Option(help="Which period of the data.")] = None,
    max_cost: Annotated[str | None, typer.Option(help="Most that privacy may cost: 5%. Default by goal.")] = None,
    max_risk: Annotated[str | None, typer.Option(help="Most that an attacker may succeed with: 1/20.")] = None,
    on: Annotated[
        str, typer.Option("--on", help="Measure on data | generated | auto: k-anonymous on data, DP on generated.")
    ] = "auto",
    size: Annotated[int | None, typer.Option(min=2, help="Records to generate, and to measure on at most.")] = None,
    draws: Annotated[int | None, typer.Option(min=2, help="Times each point is measured; 7, quick 4.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer candidates and draws.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes that measure.")] = 2,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Sweep mechanisms and parameters, draw the frontier of cost against risk, and recommend a policy. Private.

    Nothing is published or spent. A run that was interrupted continues when it is started again.

    Example: dunnage advise parcels.csv --policy parcels.toml --goal trucks --capacity 500kg -o frontier
    """
    from dunnage.advising.advice import advise as find_frontier
    from dunnage.advising.advice import finish, publish_command
    from dunnage.advising.policies import BasePolicy
    from dunnage.pages.frontier import frontier_page

    with progress() as tell:
        frontier = find_frontier(
            data,
            policy=policy,
            goal=goal,
            out=out,
            period=period,
            capacity=capacity or (),
            by=by,
            city=city,
            max_cost=max_cost,
            max_risk=max_risk,
            on=on,
            size=size,
            draws=draws,
            quick=quick,
            jobs=jobs,
            force=force,
            progress=tell,
        )
        frontier.write(out, page=frontier_page(frontier), force=force)
        finish(out)
    text = f"{frontier.summary()}\n\nFrontier in {out} (private)."
    if frontier.recommended is not None:
        onward = publish_command(BasePolicy.read(policy), out, data=str(data), period=period)
        chosen = "recommended" if frontier.meets_limit else "closest"
        text += f" To go on with the {chosen} policy:\n  {onward}"
    print_result({"frontier": str(out), **frontier.to_dict()}, text, as_json)
