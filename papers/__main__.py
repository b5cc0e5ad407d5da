# SPDX-License-Identifier: Apache-2.0
"""Reproduce papers: ``python -m papers hoogervorst2019 [--quick] --out reproduced``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from papers import bhati2021, fioretto2018, hoogervorst2019, li2022, yao2024
from papers.report import Reproduce

PAPERS: dict[str, Reproduce] = {
    "bhati2021": bhati2021.reproduce,
    "fioretto2018": fioretto2018.reproduce,
    "hoogervorst2019": hoogervorst2019.reproduce,
    "li2022": li2022.reproduce,
    "yao2024": yao2024.reproduce,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m papers", description="Reproduce papers, theirs beside ours.")
    parser.add_argument("paper", nargs="*", help=f"which ones, of {', '.join(PAPERS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="fewer draws and values of k: two minutes on two cores")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="folder for one folder a paper")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to use")
    given = parser.parse_args()
    unknown = [name for name in given.paper if name not in PAPERS]
    if unknown:
        parser.error(f"no paper {unknown[0]!r}. There is: {', '.join(PAPERS)}.")
    if given.workers < 1:
        parser.error("--workers must be at least 1.")
    for name in given.paper or PAPERS:
        page = PAPERS[name](given.out / name, quick=given.quick, workers=given.workers)
        print(f"{name}: {page}")


if __name__ == "__main__":
    main()
