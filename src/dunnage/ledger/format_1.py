# SPDX-License-Identifier: Apache-2.0
"""Ledgers of format 1, as 0.1.0 wrote them: tables of budgets and spends, read into the entries of today's format."""

from __future__ import annotations

import json
import sqlite3
from fractions import Fraction
from typing import Any

from dunnage.ledger.entries import NO_TOTALS, Content, Entry, Kind, budget_table, loss_table, next_entry
from dunnage.model.guarantees import UNBOUNDED, Accounting, Budget, ConcentratedDP, Loss, Neighbours, guarantee_from

_NONE = "none"  # instead of an amount: no bound exists


def _rows(database: sqlite3.Connection, table: str) -> list[Content]:
    cursor = database.execute(f"SELECT * FROM {table} ORDER BY number")
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for row in rows:  # SQLite keeps whatever it is given
        if not all(isinstance(cell, str) for name, cell in row.items() if name not in ("number", "period")):
            raise TypeError
    return rows


def upgraded(database: sqlite3.Connection) -> list[Entry]:
    """Return the budgets and spends of a ledger as chained entries, in the order of their times."""
    columns: list[tuple[str, int, Kind, Content]] = []
    for row in _rows(database, "budgets"):
        terms = [row["epsilon"], row["delta"], row["neighbours"], row.get("accounting", Accounting.SUM)]
        names = ("epsilon", "delta", "neighbours", "accounting")
        budget = budget_table(Budget(**dict(zip(names, terms, strict=True))))
        columns.append(
            (row["at"], 0, Kind.BUDGET, {**row, "content": {"budget": budget, "rule": None, "note": row["note"]}})
        )
    for row in _rows(database, "spends"):
        guarantee = json.loads(row["guarantee"])
        loss = {str(kind): loss_table(_loss(row, guarantee, kind)) for kind in Neighbours}
        content = {
            "period": row["period"],
            "policy": row["policy_digest"],
            "promise": row["promise_digest"],
            "guarantee": guarantee,
            "basis": row["basis"],
            "loss": loss,
            "note": row["note"],
            "format": 1,
        }
        columns.append((row["at"], 1, Kind.SPEND, {**row, "content": content}))
    heads: dict[str, Entry] = {}
    periods: dict[tuple[str, str | None], Any] = {}
    entries = []
    # A policy's first budget was written just before its spend, so it comes first at the same time.
    for at, _, kind, row in sorted(columns, key=lambda item: (item[0], item[1], item[3]["number"])):
        place = row["dataset"], row["period"] if kind is Kind.SPEND else None
        entry = next_entry(
            heads.get(row["dataset"]),
            dataset=row["dataset"],
            kind=kind,
            at=at,
            who=row["who"],
            content=row["content"],
            same_period=periods.get(place, NO_TOTALS),
            name=row["id"] if kind is Kind.SPEND else None,
        )
        heads[entry.dataset] = entry
        if kind is Kind.SPEND:
            periods[place] = entry.running
        entries.append(entry)
    return entries


def _loss(row: Content, guarantee: Content, neighbours: Neighbours) -> Loss:
    name = str(neighbours).replace("-", "_")
    if row[f"epsilon_{name}"] == _NONE:
        return UNBOUNDED
    # A row has no column for rho: it is that of the guarantee, whose loss is charged unless there is none.
    concentrated = guarantee["model"] == ConcentratedDP.model
    rho = guarantee_from(guarantee).plain_loss(neighbours).rho if concentrated else None
    return Loss(Fraction(row[f"epsilon_{name}"]), Fraction(row[f"delta_{name}"]), rho)
