"""Whether scenarios are compared or recorded."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def record(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--record")) or "DUNNAGE_RECORD" in os.environ
