# SPDX-License-Identifier: Apache-2.0
"""Dunnage: publish transport and logistics data privately, plan on it, and see what privacy cost.

The names below are the whole public interface. They are loaded when first used, so that ``import dunnage`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dunnage._version import __version__

if TYPE_CHECKING:
    from dunnage.advising.advice import advise
    from dunnage.advising.frontier import Frontier, Measure, Point
    from dunnage.auditing.carriers import Fleet
    from dunnage.auditing.classes import Match, look_up
    from dunnage.auditing.findings import Finding
    from dunnage.auditing.plans import PlanUtility, plan_utility
    from dunnage.auditing.run import Audit, audit
    from dunnage.certificate import Certificate
    from dunnage.city import Buses, City
    from dunnage.dataset import Dataset
    from dunnage.devices import FileColumns, collect, perturb, simulate
    from dunnage.devices.sealing import KeyRing, SealedRecord, open_record, rotate, seal
    from dunnage.domains import Category, Graph, Numeric, Ordinal, Stops, Tree, Windows
    from dunnage.errors import (
        AllowanceError,
        BudgetError,
        CheckFailed,
        CompositionError,
        DunnageError,
        InputError,
        InternalError,
        LedgerError,
        NoPlanError,
        OutputError,
        ParameterError,
        PolicyError,
        Refusal,
        ReleaseError,
        ReportError,
        SealError,
        TaskError,
        UserError,
    )
    from dunnage.gtfs import load_city
    from dunnage.guarantees import (
        ApproximateDP,
        Basis,
        Budget,
        KAnonymity,
        LocalDP,
        MetricLocalDP,
        Neighbours,
        Promise,
        PureDP,
        SampledDP,
        WithinCluster,
        WithinPublishedBorders,
        compose,
        implies,
        parallel,
    )
    from dunnage.io import draft, load
    from dunnage.laws import Cells, LaplaceLaw, PiecewiseLaw
    from dunnage.ledger import Ledger
    from dunnage.local.allowance import Allowance
    from dunnage.local.client import Client, check_task
    from dunnage.local.estimate import estimate
    from dunnage.local.location import LocalLocation
    from dunnage.local.numeric import LocalNumeric
    from dunnage.local.report import Report
    from dunnage.local.subjects import Grid, Quantity
    from dunnage.local.tally import Tallies, Tally
    from dunnage.local.task import Limits, Purpose, Schedule, Task, Tier
    from dunnage.local.tasks import CarrierPolicy, read_carriers, task_of
    from dunnage.local.trajectory import LocalTrajectory
    from dunnage.mechanisms.base import Foresight
    from dunnage.mechanisms.constrained_counts import ConstrainedCounts
    from dunnage.mechanisms.full_domain import FullDomain
    from dunnage.mechanisms.hierarchical_counts import HierarchicalCounts
    from dunnage.mechanisms.noisy_clusters import NoisyClusters
    from dunnage.mechanisms.noisy_counts import NoisyCounts
    from dunnage.mechanisms.noisy_values import NoisyValues
    from dunnage.mechanisms.partition import Partition
    from dunnage.mechanisms.sampled_lattice import SampledLattice
    from dunnage.mechanisms.utility_clusters import UtilityClusters
    from dunnage.noise import Noise
    from dunnage.planning.dispatch import Service
    from dunnage.planning.exports import export_fleetpy, export_geojson, export_plan
    from dunnage.planning.fleet import size
    from dunnage.planning.models import Robust, Sealed, Standard, Stochastic
    from dunnage.planning.packing import pack
    from dunnage.planning.plan import FleetPlan, Plan
    from dunnage.planning.trucks import Truck, read_trucks
    from dunnage.policy import Policy
    from dunnage.proving.desk import Proof, prove
    from dunnage.proving.verdict import Verdict
    from dunnage.publication import Key, Publication
    from dunnage.publishing import DryRun, foresee, promise, publish, rehearse
    from dunnage.release import Release, Uncertain
    from dunnage.routes import Routes, RouteSetting, find_routes
    from dunnage.samples import (
        CitySetting,
        PackageSetting,
        PositionSetting,
        RideSetting,
        TelemetrySetting,
        TripSetting,
        generate_city,
        generate_city_trips,
        generate_packages,
        generate_positions,
        generate_rides,
        generate_telemetry,
        generate_trips,
        metro_edges,
        package_setting,
        trip_modes,
        trip_stops,
    )
    from dunnage.samples.packages import packages
    from dunnage.samples.rides import rides
    from dunnage.sampling_loss import sampling_beta, sampling_delta, sampling_epsilon, smallest_k
    from dunnage.schema import Attribute, Contribution, Role, Schema
    from dunnage.settle import Settlement, apply
    from dunnage.settle.fleets import FleetSettlement, apply_fleet
    from dunnage.trips import Trip, Universe
    from dunnage.verification import Verification, verify

# Public name -> module that defines it, grouped by use.
_GROUPS: dict[str, tuple[str, ...]] = {
    # the verbs
    "io": ("load", "draft"),
    "publishing": ("promise", "publish", "rehearse", "foresee", "DryRun"),
    "verification": ("verify", "Verification"),
    "planning.packing": ("pack",),
    "planning.models": ("Standard", "Robust", "Stochastic", "Sealed"),
    "settle": ("apply", "Settlement"),
    "local.tasks": ("CarrierPolicy", "read_carriers", "task_of"),
    "devices": ("perturb", "simulate", "collect", "FileColumns"),
    "local.estimate": ("estimate",),
    "planning.fleet": ("size",),
    "settle.fleets": ("apply_fleet", "FleetSettlement"),
    "planning.exports": ("export_plan", "export_fleetpy", "export_geojson"),
    "gtfs": ("load_city",),
    "advising.advice": ("advise",),
    "advising.frontier": ("Frontier", "Point", "Measure"),
    "proving.desk": ("prove", "Proof"),
    "proving.verdict": ("Verdict",),
    "auditing.plans": ("plan_utility", "PlanUtility"),
    "auditing.run": ("audit", "Audit"),
    "auditing.findings": ("Finding",),
    "auditing.classes": ("look_up", "Match"),
    # the nouns
    "policy": ("Policy",),
    "schema": ("Schema", "Attribute", "Role", "Contribution"),
    "domains": ("Numeric", "Ordinal", "Category", "Tree", "Graph", "Stops", "Windows"),
    "trips": ("Trip", "Universe"),
    "city": ("City", "Buses"),
    "dataset": ("Dataset",),
    "release": ("Release", "Uncertain"),
    "publication": ("Publication", "Key"),
    "certificate": ("Certificate",),
    "ledger": ("Ledger",),
    "noise": ("Noise",),
    "planning.plan": ("Plan", "FleetPlan"),
    "planning.trucks": ("Truck", "read_trucks"),
    "routes": ("Routes", "RouteSetting", "find_routes"),
    "planning.dispatch": ("Service",),
    "local.subjects": ("Quantity", "Grid"),
    "local.task": ("Task", "Purpose", "Tier", "Schedule", "Limits"),
    "local.report": ("Report",),
    "local.allowance": ("Allowance",),
    "local.client": ("Client", "check_task"),
    "local.tally": ("Tally", "Tallies"),
    "devices.sealing": ("KeyRing", "SealedRecord", "seal", "open_record", "rotate"),
    "auditing.carriers": ("Fleet",),
    # guarantees
    "guarantees": (
        "ApproximateDP",
        "Basis",
        "Budget",
        "KAnonymity",
        "LocalDP",
        "MetricLocalDP",
        "Neighbours",
        "Promise",
        "PureDP",
        "SampledDP",
        "WithinCluster",
        "WithinPublishedBorders",
        "compose",
        "implies",
        "parallel",
    ),
    "sampling_loss": ("sampling_delta", "sampling_epsilon", "sampling_beta", "smallest_k"),
    # mechanisms
    "mechanisms.constrained_counts": ("ConstrainedCounts",),
    "mechanisms.full_domain": ("FullDomain",),
    "mechanisms.hierarchical_counts": ("HierarchicalCounts",),
    "mechanisms.noisy_clusters": ("NoisyClusters",),
    "mechanisms.noisy_counts": ("NoisyCounts",),
    "mechanisms.noisy_values": ("NoisyValues",),
    "mechanisms.partition": ("Partition",),
    "mechanisms.sampled_lattice": ("SampledLattice",),
    "mechanisms.utility_clusters": ("UtilityClusters",),
    "mechanisms.base": ("Foresight",),
    "local.numeric": ("LocalNumeric",),
    "local.location": ("LocalLocation",),
    "local.trajectory": ("LocalTrajectory",),
    "laws": ("Cells", "LaplaceLaw", "PiecewiseLaw"),
    # generated data
    "samples": (
        "PackageSetting",
        "package_setting",
        "generate_packages",
        "RideSetting",
        "metro_edges",
        "generate_rides",
        "TripSetting",
        "trip_stops",
        "trip_modes",
        "generate_trips",
        "CitySetting",
        "generate_city",
        "generate_city_trips",
        "TelemetrySetting",
        "generate_telemetry",
        "PositionSetting",
        "generate_positions",
    ),
    "samples.packages": ("packages",),
    "samples.rides": ("rides",),
    # errors
    "errors": (
        "DunnageError",
        "UserError",
        "InputError",
        "PolicyError",
        "ParameterError",
        "OutputError",
        "ReleaseError",
        "LedgerError",
        "TaskError",
        "ReportError",
        "SealError",
        "Refusal",
        "CompositionError",
        "AllowanceError",
        "BudgetError",
        "CheckFailed",
        "NoPlanError",
        "InternalError",
    ),
}
_MODULE_OF = {name: module for module, names in _GROUPS.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dunnage' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dunnage.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
