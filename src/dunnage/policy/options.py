# SPDX-License-Identifier: Apache-2.0
"""How files are written and cut into periods, as a policy says it."""

from __future__ import annotations

import string
from dataclasses import dataclass

from dunnage.errors import ParameterError

PERIOD_FORMATS = {"day": "%Y-%m-%d", "month": "%Y-%m"}
_DELIMITERS = frozenset(string.punctuation + " \t") - {'"'}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a CSV file is written: delimiter, decimal mark, encoding, and the words that mean "missing"."""

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    null: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.delimiter not in _DELIMITERS:
            raise ParameterError(
                f'delimiter must be a tab, a space or one mark. Got {self.delimiter!r}. Use "," or ";", say.'
            )
        if self.decimal not in (".", ",") or self.decimal == self.delimiter:
            raise ParameterError(
                f'decimal must be "." or "," and differ from the delimiter. Got {self.decimal!r}. '
                'Use decimal = "," with delimiter = ";".'
            )
        try:
            ",".encode(self.encoding)
        except (LookupError, ValueError):
            raise ParameterError(f'unknown encoding {self.encoding!r}. Use "utf-8" or "latin-1", say.') from None


@dataclass(frozen=True, kw_only=True)
class PeriodRule:
    """How a dataset that grows is cut into periods; without a column the whole file is one period."""

    length: str
    column: str | None = None

    def __post_init__(self) -> None:
        if self.length not in PERIOD_FORMATS:
            raise ParameterError(f"a period is one of {', '.join(PERIOD_FORMATS)}. Got {self.length!r}.")
