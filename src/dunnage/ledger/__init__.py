# SPDX-License-Identifier: Apache-2.0
"""The ledger: the owner's book of what was spent, in SQLite or PostgreSQL behind one interface."""

from dunnage.ledger.book import RELEASED, STOPPED, BudgetEntry, Ledger, Rehearsal, Rehearsed, Rule, Spend, Statement
from dunnage.ledger.store import location

__all__ = [
    "RELEASED",
    "STOPPED",
    "BudgetEntry",
    "Ledger",
    "Rehearsal",
    "Rehearsed",
    "Rule",
    "Spend",
    "Statement",
    "location",
]
