"""Fixtures that several test files use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Public test data beyond the repository; DUNNAGE_DATA says where (default: ../shared/data)."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DUNNAGE_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}: set DUNNAGE_DATA to the folder that holds it")
    return folder
