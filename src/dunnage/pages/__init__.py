# SPDX-License-Identifier: Apache-2.0
"""Pages: self-contained HTML files that show an owner what privacy cost and what an attacker could learn.

A page needs no network and no script: its Content-Security-Policy forbids everything but its own style. Figures are
SVG.
"""

from __future__ import annotations

from dunnage.pages.audit import audit_page, write_audit
from dunnage.pages.loads import LoadsStory, PlanView, loads_page

__all__ = ["LoadsStory", "PlanView", "audit_page", "loads_page", "write_audit"]
