# SPDX-License-Identifier: Apache-2.0
"""The command ``prove``."""

from __future__ import annotations

from typing import Annotated

import typer

from dunnage.cli.shared import JsonFlag, print_result, progress


def prove(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MECHANISM",
            help="Names as in a policy; all by default. The noise they draw from is checked with any.",
        ),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="Larger domains and more parameters: about five minutes.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes to use.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Check mechanisms themselves: what each claims, what it really gives away, and the verdict.

    Exit 1 if anything proved exceeds its bound, or a published form that is known to be wrong does not fail.

    Example: dunnage prove noisy-counts noisy-clusters
    """
    from dunnage.proving.desk import prove as prove_mechanisms

    with progress() as tell:
        found = prove_mechanisms(mechanisms or None, long=long, jobs=jobs, progress=tell)
    print_result(found.to_dict(), found.summary(), as_json)
    if not found.as_expected:
        raise typer.Exit(1)
