# SPDX-License-Identifier: Apache-2.0
"""Types of arrays, once for all modules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
