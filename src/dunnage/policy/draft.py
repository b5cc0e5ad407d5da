# SPDX-License-Identifier: Apache-2.0
"""Policies to be filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from dunnage.policy.options import ReadOptions


def draft_policy(dataset: str, kinds: Mapping[str, str], *, options: ReadOptions | None = None) -> str:
    """Write a policy to be filled in, from column names and kinds alone.

    Parameters
    ----------
    dataset
        Name for the ledger.
    kinds
        Column name to ``numeric`` or ``text``.
    options
        How the CSV file is written, where it is not the usual way.

    Returns
    -------
    str
        TOML text with roles, domains and k left blank; reading it lists everything to fill in.
    """
    tables = "\n".join(_draft_attribute(name, kind) for name, kind in kinds.items())
    read = _draft_read(options or ReadOptions())
    return f"""# Fill in what is blank, then look before you publish:
#   dunnage publish DATA --policy THIS.toml --dry-run
dataset = {_toml_text(dataset)}
protects = "record"        # what one row stands for: "package", "trip" ...

{tables}
[mechanism]
name = "partition"         # intervals of at least k records of one numeric quasi-identifier
k = ""                     # fewest records that must look alike; no default, it is your promise
statistic = "bounds"       # bounds | mean | multiset: what is told about a class
bounds = "class"           # class (its own smallest and largest value) | grid (rounded to the resolution)
{read}"""


def _draft_read(options: ReadOptions) -> str:
    unusual = [
        f"{name} = {_toml_text(getattr(options, name))}"
        for name in ("delimiter", "decimal", "encoding")
        if getattr(options, name) != getattr(ReadOptions(), name)
    ]
    return "\n".join(["", "[read]", *unusual, ""]) if unusual else ""


_DRAFT_NUMBERS = [
    'kind = "numeric"',
    "domain = []                # public bounds [lowest, highest], never read from the data; or delete this line",
    "# resolution = 0.1         # step of the public grid",
    '# unit = "kg"',
]


def _draft_attribute(name: str, kind: str) -> str:
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml_text(name)
    lines = [
        f"[attributes.{key}]",
        'role = ""                  # identifier | quasi-identifier | sensitive | public | drop',
    ]
    return "\n".join(lines + (_DRAFT_NUMBERS if kind == "numeric" else [])) + "\n"


def _toml_text(text: str) -> str:
    # JSON's escapes are TOML's, but for pairs of surrogates and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
