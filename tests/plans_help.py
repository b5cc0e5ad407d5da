# SPDX-License-Identifier: Apache-2.0
"""Plans as somebody makes them by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

import dunnage as dn
from dunnage.planning.models import PackingModel


def plan_of(release: dn.Release, bins: Any, capacity: float = 1e6, **more: Any) -> dn.Plan:
    """Put each row into its bin; trucks are of one kind that holds so many kilos, unless more is said."""
    bin_of_row = np.asarray(bins)
    usual: dict[str, Any] = {"truck_of_bin": ("truck",) * (int(bin_of_row.max()) + 1), "bound": 0, "seconds": 0.0}
    usual["trucks"] = (dn.Truck(name="truck", capacity={"weight": capacity}),)
    usual |= {"model": PackingModel(name="by hand"), "quantities": {"weight": "kg"}, **more}
    return dn.Plan(release=release.certificate.digest, bin_of_row=bin_of_row, **usual)
