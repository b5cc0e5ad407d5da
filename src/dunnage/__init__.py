# SPDX-License-Identifier: Apache-2.0
"""Dunnage: publish transport and logistics data privately, plan on it, and see what privacy cost.

``PUBLIC`` lists the names that everyone needs. They are loaded when first used, so that ``import dunnage`` is cheap.
What a module offers beyond them is imported from the module: ``dunnage.samples``, ``dunnage.errors``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dunnage._version import __version__

if TYPE_CHECKING:
    from dunnage.advising.advice import advise
    from dunnage.advising.frontier import Frontier
    from dunnage.auditing.findings import Finding
    from dunnage.auditing.plans import plan_utility
    from dunnage.auditing.run import Audit, audit
    from dunnage.collecting.estimate import estimate
    from dunnage.collecting.files import collect, perturb
    from dunnage.collecting.fleet import simulate
    from dunnage.collecting.tasks import read_carriers, task_of
    from dunnage.devices.allowance import Allowance
    from dunnage.devices.client import Client
    from dunnage.devices.numbers import LocalNumeric
    from dunnage.devices.paths import LocalTrajectory
    from dunnage.devices.places import LocalLocation
    from dunnage.devices.report import Report
    from dunnage.devices.task import Task
    from dunnage.engines import load
    from dunnage.errors import (
        BudgetError,
        CheckFailed,
        DunnageError,
        InputError,
        NoPlanError,
        PolicyError,
        Refusal,
        UserError,
    )
    from dunnage.ledger import Ledger
    from dunnage.mechanisms.clusters import UtilityClusters
    from dunnage.mechanisms.counts import ConstrainedCounts, HierarchicalCounts, NoisyCounts
    from dunnage.mechanisms.fitted_counts import FittedCounts
    from dunnage.mechanisms.full_domain import FullDomain
    from dunnage.mechanisms.gaussian_counts import GaussianCounts
    from dunnage.mechanisms.noisy import NoisyClusters, NoisyValues
    from dunnage.mechanisms.partition import Partition
    from dunnage.mechanisms.sampled_lattice import SampledLattice
    from dunnage.mechanisms.size_profile import SizeProfile
    from dunnage.model.certificate import Certificate
    from dunnage.model.city import City
    from dunnage.model.domains import Category, Graph, Numeric, Tree
    from dunnage.model.guarantees import Basis, Budget, KAnonymity, LocalDP, Promise, PureDP, compose, implies
    from dunnage.model.house import Clearance, House
    from dunnage.model.policy import Policy
    from dunnage.model.schema import Attribute, Role, Schema
    from dunnage.noise.source import Noise
    from dunnage.planning.boxes import Box
    from dunnage.planning.dispatch import Service
    from dunnage.planning.exports import export_plan
    from dunnage.planning.fleet import size
    from dunnage.planning.models import Robust, Sealed, Standard, Stochastic
    from dunnage.planning.packing import pack
    from dunnage.planning.plan import FleetPlan, Plan
    from dunnage.planning.shifts import ShiftRule
    from dunnage.planning.trucks import Truck, read_trucks
    from dunnage.proving.verdict import Proof, Verdict, prove
    from dunnage.publication import Key, Publication
    from dunnage.publishing import DryRun, promise, publish, rehearse
    from dunnage.release import Release, Uncertain
    from dunnage.settle import Settlement, apply
    from dunnage.settle.fleets import FleetSettlement, apply_fleet
    from dunnage.tables.dataset import Dataset, draft
    from dunnage.tables.gtfs import load_city
    from dunnage.verification import Verification, verify

# What a name is for -> the module that defines it -> names, in the order of the reference.
PUBLIC: dict[str, dict[str, tuple[str, ...]]] = {
    "Draft, load, advise": {
        "tables.dataset": ("draft",),
        "engines": ("load",),
        "advising.advice": ("advise",),
        "advising.frontier": ("Frontier",),
    },
    "Publish and verify": {
        "publishing": ("publish", "promise", "rehearse", "DryRun"),
        "verification": ("verify", "Verification"),
    },
    "Pack": {
        "planning.packing": ("pack",),
        "planning.models": ("Standard", "Robust", "Stochastic", "Sealed"),
        "planning.trucks": ("read_trucks", "Truck"),
    },
    "Size": {
        "planning.fleet": ("size",),
        "tables.gtfs": ("load_city",),
        "planning.boxes": ("Box",),
        "planning.dispatch": ("Service",),
        "planning.shifts": ("ShiftRule",),
        "planning.exports": ("export_plan",),
    },
    "Apply": {
        "settle": ("apply", "Settlement"),
        "settle.fleets": ("apply_fleet", "FleetSettlement"),
        "auditing.plans": ("plan_utility",),
    },
    "Audit and prove": {
        "auditing.run": ("audit", "Audit"),
        "auditing.findings": ("Finding",),
        "proving.verdict": ("prove", "Proof", "Verdict"),
    },
    "Devices and the platform": {
        "collecting.tasks": ("read_carriers", "task_of"),
        "devices.task": ("Task",),
        "devices.client": ("Client",),
        "devices.allowance": ("Allowance",),
        "devices.report": ("Report",),
        "collecting.files": ("perturb", "collect"),
        "collecting.fleet": ("simulate",),
        "collecting.estimate": ("estimate",),
    },
    "What is private": {
        "model.policy": ("Policy",),
        "model.house": ("House", "Clearance"),
        "model.schema": ("Schema", "Attribute", "Role"),
        "tables.dataset": ("Dataset",),
        "model.city": ("City",),
        "publication": ("Publication", "Key"),
        "ledger": ("Ledger",),
        "noise.source": ("Noise",),
    },
    "What leaves": {
        "release": ("Release", "Uncertain"),
        "model.certificate": ("Certificate",),
        "planning.plan": ("Plan", "FleetPlan"),
    },
    "Domains": {
        "model.domains": ("Numeric", "Category", "Tree", "Graph"),
    },
    "Guarantees": {
        "model.guarantees": ("Promise", "Basis", "Budget", "KAnonymity", "PureDP", "LocalDP", "compose", "implies"),
    },
    "Mechanisms": {
        "mechanisms.partition": ("Partition",),
        "mechanisms.full_domain": ("FullDomain",),
        "mechanisms.clusters": ("UtilityClusters",),
        "mechanisms.sampled_lattice": ("SampledLattice",),
        "mechanisms.size_profile": ("SizeProfile",),
        "mechanisms.noisy": ("NoisyValues", "NoisyClusters"),
        "mechanisms.counts": ("NoisyCounts", "HierarchicalCounts", "ConstrainedCounts"),
        "mechanisms.fitted_counts": ("FittedCounts",),
        "mechanisms.gaussian_counts": ("GaussianCounts",),
        "devices.numbers": ("LocalNumeric",),
        "devices.places": ("LocalLocation",),
        "devices.paths": ("LocalTrajectory",),
    },
    "Errors": {
        "errors": (
            "DunnageError",
            "UserError",
            "InputError",
            "PolicyError",
            "Refusal",
            "BudgetError",
            "NoPlanError",
            "CheckFailed",
        ),
    },
}
_MODULE_OF = {name: module for group in PUBLIC.values() for module, names in group.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dunnage' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dunnage.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
