# SPDX-License-Identifier: Apache-2.0
"""Engines: where rows live, and how folds go over them. The default is memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from dunnage.folds import Rows

if TYPE_CHECKING:
    from dunnage.engines.sources import ENGINES, FileRows, MemoryRows, QueryRows, rows_of
    from dunnage.model.policy import Policy
    from dunnage.tables.dataset import Dataset

__all__ = ["ENGINES", "FileRows", "MemoryRows", "QueryRows", "load", "rows_of"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dunnage.engines import sources  # memory, the default, does not need them

    return getattr(sources, name)


def load(
    data: Any, policy: Policy | str | os.PathLike[str], *, period: str | None = None, engine: str | None = None
) -> Dataset:
    """Load private rows under a policy.

    Parameters
    ----------
    data
        Path of a CSV or Parquet file, a folder of Parquet files or an Excel workbook, or a frame with the Arrow C
        stream (polars, pandas, DuckDB, pyarrow ...). A ``.tsv`` file is CSV with tabs. For the engine ``duckdb`` a
        query, for ``spark`` a Spark DataFrame or the path of Parquet files.
    policy
        A policy or the path of one.
    period
        The period to use, if the policy has ``[period]``.
    engine
        Where the rows live: ``memory``, or else ``files``, ``duckdb`` or ``spark``, for more rows than fit into
        memory. By default ``memory``.

    Returns
    -------
    Dataset
        The checked rows. With another engine than ``memory``, only what the mechanism of the policy counts of them.

    Raises
    ------
    InputError, PolicyError
        With all problems of the file.
    """
    from dunnage.model.policy import Policy
    from dunnage.tables import dataset

    if engine in (None, "memory") and not isinstance(data, Rows):
        return dataset.load(data, policy, period=period)
    from dunnage.engines.rows import check_elsewhere
    from dunnage.engines.sources import check_engine, rows_of
    from dunnage.publishing import mechanism_of

    check_engine(engine)
    rules = policy if isinstance(policy, Policy) else Policy.read(policy)
    return check_elsewhere(lambda: rows_of(data, rules.read_options, engine), rules, period, mechanism_of(rules))
