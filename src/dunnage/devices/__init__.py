# SPDX-License-Identifier: Apache-2.0
"""Files of devices: rows that vehicles report from, report files, tallies, and sealed identity records.

What a device does with one value is in :mod:`dunnage.local.client`; this is the same for files, one vehicle's or a
whole fleet's.
"""

from dunnage.devices.collecting import (
    Collected,
    collect,
    describe_reports,
    describe_tallies,
    read_tallies,
    read_task_file,
)
from dunnage.devices.fleet import Simulation, simulate
from dunnage.devices.perturbing import Perturbed, perturb, read_clock
from dunnage.devices.reading import FileColumns
from dunnage.devices.sealing import open_file, rotate_file, seal_file

__all__ = [
    "Collected",
    "FileColumns",
    "Perturbed",
    "Simulation",
    "collect",
    "describe_reports",
    "describe_tallies",
    "open_file",
    "perturb",
    "read_clock",
    "read_tallies",
    "read_task_file",
    "rotate_file",
    "seal_file",
    "simulate",
]
