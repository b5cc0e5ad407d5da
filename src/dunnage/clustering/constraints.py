# SPDX-License-Identifier: Apache-2.0
"""What a class must keep to besides its number of persons: widths, diverse sensitive values, few lost records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from dunnage.arrays import FloatArray, IntArray
from dunnage.clustering.metric import CodeArray, Metric
from dunnage.errors import ParameterError

TOLERANCE = 1e-9  # rounding of sums of shares; a class this close to a bound keeps it


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Constraints:
    """Conditions on each class and on the number of lost records. Private: its ``repr`` shows nothing."""

    # Largest width a class may have in each attribute, in the metric's order and in its units of distance; infinity for
    # none (Bhati et al. 2021, C1)
    limits: FloatArray | None = None
    # Largest share of records that methods may leave out by their own choice (C2). Records that no class can take are
    # left out whatever it says: `kept` tells
    max_suppressed: float = 1.0
    # Smallest diversity of each sensitive attribute in each class
    l: float = 1.0  # noqa: E741 - the literature's name
    # `"distinct"`: number of values; `"entropy"`: exponential of the entropy
    l_kind: Literal["distinct", "entropy"] = "distinct"
    t: float = np.inf  # Largest distance of a class's sensitive values from those of the whole table; infinity for none
    # `"equal"`: all values equally far apart; `"ordered"`: codes are in order, neighbours 1/(codes - 1) apart
    t_kind: Literal["equal", "ordered"] = "equal"
    # Codes of sensitive attributes. Shape: attributes, records
    sensitive: CodeArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    # Share of each code in the whole table, for each sensitive attribute; by default that of `sensitive`. Parts of a
    # table are measured against the whole
    shares: tuple[FloatArray, ...] | None = None

    def __post_init__(self) -> None:
        _demand(0 <= self.max_suppressed <= 1, "max_suppressed must be a share from 0 to 1", self.max_suppressed)
        _demand(self.l >= 1, "l must be at least 1", self.l)
        _demand(self.t >= 0, "t must be at least 0", self.t)
        _demand(self.l_kind in ("distinct", "entropy"), "l_kind must be distinct or entropy", self.l_kind)
        _demand(self.t_kind in ("equal", "ordered"), "t_kind must be equal or ordered", self.t_kind)
        if self.limits is not None:
            _demand(bool(np.all(self.limits >= 0)), "limits must be at least 0", self.limits)
        if self.shares is None:
            counts = [np.bincount(codes) for codes in self.sensitive]
            object.__setattr__(self, "shares", tuple(count / max(1, count.sum()) for count in counts))

    def take(self, records: IntArray) -> Constraints:
        """Return the same conditions on some records, in their order, still measured against the whole table."""
        if not len(self.sensitive):
            return self
        return replace(self, sensitive=np.ascontiguousarray(self.sensitive[:, records]))

    def rules(self, num_attributes: int, num_records: int) -> tuple[Any, ...]:
        """Return everything kernels take, in their order."""
        assert self.shares is not None
        limits = np.full(num_attributes, np.inf) if self.limits is None else np.asarray(self.limits, dtype=np.float64)
        most = max((len(share) for share in self.shares), default=1)
        shares = np.zeros((len(self.shares), most))
        for row, share in zip(shares, self.shares, strict=True):
            row[: len(share)] = share
        sensitive = self.sensitive if len(self.sensitive) else np.zeros((0, num_records), dtype=np.int32)
        return (
            limits + TOLERANCE * np.maximum(1.0, np.where(np.isfinite(limits), limits, 1.0)),
            np.ascontiguousarray(sensitive, dtype=np.int32),
            shares,
            np.array([len(share) for share in self.shares], dtype=np.int64),
            np.array([self.l, self.t]),
            np.array([self.l_kind == "entropy", self.t_kind == "ordered"]),
        )

    def diversity(self, of_record: IntArray) -> FloatArray:
        """Return the diversity of each class in each sensitive attribute. Shape: attributes, classes."""
        found = [_diversity(share, self.l_kind) for share in self._class_shares(of_record)]
        return np.array(found).reshape(len(found), int(of_record.max(initial=-1)) + 1)

    def closeness(self, of_record: IntArray) -> FloatArray:
        """Return how far each class is from the whole table in each sensitive attribute. Shape: attributes, classes."""
        assert self.shares is not None
        pairs = zip(self._class_shares(of_record), self.shares, strict=True)
        found = [_distance(share, whole, self.t_kind) for share, whole in pairs]
        return np.array(found).reshape(len(found), int(of_record.max(initial=-1)) + 1)

    def _class_shares(self, of_record: IntArray) -> list[FloatArray]:
        """Return the share of each code in each class, per sensitive attribute. Shape of each: classes, codes."""
        assert self.shares is not None
        kept = of_record >= 0
        found = []
        for codes, whole in zip(self.sensitive, self.shares, strict=True):
            counts = np.zeros((int(of_record.max(initial=-1)) + 1, len(whole)))
            np.add.at(counts, (of_record[kept], codes[kept]), 1)
            found.append(counts / np.maximum(1, counts.sum(axis=1, keepdims=True)))
        return found

    def kept(self, metric: Metric, of_record: IntArray) -> bool:
        """Whether every class keeps to the conditions, and no more records are left out than may be."""
        narrow = self.limits is None or bool(
            np.all(metric.widths(of_record) <= (self.limits * (1 + TOLERANCE) + TOLERANCE)[:, None])
        )
        lost = int((of_record < 0).sum())
        return (
            narrow
            and bool(np.all(self.diversity(of_record) >= self.l - TOLERANCE))
            and bool(np.all(self.closeness(of_record) <= self.t + TOLERANCE))
            and lost <= self.max_suppressed * len(of_record) + TOLERANCE
        )


def packed(constraints: Constraints | None, metric: Metric) -> tuple[Any, ...]:
    """Return the rules for kernels; without constraints those that ask for nothing."""
    chosen = Constraints() if constraints is None else constraints
    if chosen.limits is not None and len(chosen.limits) != len(metric.charge):
        raise ParameterError(
            f"limits need one width an attribute. Got {len(chosen.limits)} for {len(metric.charge)} attributes. "
            "Give infinity where there is no limit."
        )
    return chosen.rules(len(metric.charge), len(metric))


def spare(constraints: Constraints | None, num_records: int) -> int:
    """Return how many records may be left out by choice: none when no constraints are given."""
    return 0 if constraints is None else int(constraints.max_suppressed * num_records + TOLERANCE)


def num_persons(of_record: IntArray, person: IntArray | None = None) -> IntArray:
    """Return the number of distinct persons in each class; of records when persons are not known."""
    num = int(of_record.max(initial=-1)) + 1
    kept = of_record >= 0
    if person is None:
        return np.bincount(of_record[kept], minlength=num).astype(np.int64)
    pairs = np.unique(np.stack((of_record[kept], person[kept])), axis=1)
    return np.bincount(pairs[0], minlength=num).astype(np.int64)


def _diversity(share: FloatArray, kind: str) -> FloatArray:
    if kind == "distinct":
        return np.asarray((share > 0).sum(axis=1), dtype=np.float64)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.asarray(np.exp(-(share * logs).sum(axis=1)))


def _distance(share: FloatArray, whole: FloatArray, kind: str) -> FloatArray:
    if kind == "equal":
        return np.asarray(np.abs(share - whole).sum(axis=1) / 2)
    return np.asarray(np.abs(np.cumsum(share - whole, axis=1)).sum(axis=1) / max(1, len(whole) - 1))


def _demand(holds: bool, rule: str, got: object) -> None:
    if not holds:
        raise ParameterError(f"{rule}. Got {got}. Give a value that fits.")
