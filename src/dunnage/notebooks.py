# SPDX-License-Identifier: Apache-2.0
"""How releases, plans, audits and frontiers behave in notebooks: as frames, as a summary, as a picture.

Pages know how to draw, and lie far above: they are looked up by name, and only when something is shown.
"""

from __future__ import annotations

import html
import importlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from dunnage.errors import ParameterError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


def _drawing() -> Any:
    return importlib.import_module("dunnage.showing.notebooks")


class Displayed:
    """Shows itself in a notebook."""

    def _repr_html_(self) -> str:
        return str(_drawing().summary_html(self))

    def plot(self) -> Any:
        """Draw the picture of its page: shows itself in a notebook, and ``save`` writes it as SVG."""
        return _drawing().drawing_of(self)


class Summarised:
    """Shows its summary in a notebook."""

    @abstractmethod
    def summary(self) -> str:
        """Describe it for a person."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"


class Tabular:
    """Gives its main table as a frame."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Give the main table as an Arrow table."""

    def to_pandas(self) -> Any:
        """Give the main table as a pandas frame."""
        try:
            return self.to_arrow().to_pandas()
        except ModuleNotFoundError:
            raise ParameterError("pandas is not installed. Install it, or use to_arrow() or to_polars().") from None

    def to_polars(self) -> pl.DataFrame:
        """Give the main table as a polars frame."""
        try:
            import polars
        except ModuleNotFoundError:
            raise ParameterError("polars is not installed. Install it, or use to_arrow() or to_pandas().") from None
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame
