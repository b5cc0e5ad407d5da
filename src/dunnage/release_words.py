# SPDX-License-Identifier: Apache-2.0
"""Moved: see dunnage.text and dunnage.kinds.counts."""

from __future__ import annotations

from dunnage.kinds.counts import CELLS as CELLS
from dunnage.kinds.counts import loss_words as loss_words
from dunnage.text import several as several
