# SPDX-License-Identifier: Apache-2.0
"""The running half of every mechanism: promise, prepare, spend, draw, certify; then the release and its key.

Here alone private rows, budget and key meet what was promised without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dunnage.certificate import SpendStatement, certify
from dunnage.publication import Key, Publication
from dunnage.release import Release

if TYPE_CHECKING:
    from dunnage.ledger import Ledger
    from dunnage.mechanisms.base import Drawn, Mechanism, Progress
    from dunnage.noise import Noise
    from dunnage.tables.dataset import Dataset


def run(
    mechanism: Mechanism,
    dataset: Dataset,
    *,
    ledger: Ledger,
    noise: Noise,
    progress: Progress | None = None,
) -> Publication:
    """Release a dataset: whatever can be refused is refused before the spend, and noise is first drawn after it."""
    promise = mechanism.promise(dataset.schema)
    if noise.seeded:
        promise = promise.voided(mechanism.seeded)
    prepared = mechanism.prepare(dataset, progress)
    spend = ledger.spend(promise, dataset.purpose)
    drawn = mechanism.draw(dataset, prepared, noise)
    certificate = certify(
        promise,
        kind="rows" if drawn.rows is not None else "counts",
        dataset=dataset.policy.dataset,
        period=dataset.period,
        attributes=mechanism.attributes(dataset),
        measures=drawn.measures,
        spend=SpendStatement(id=spend.id, at=spend.at),
        composed=ledger.statement(dataset.policy.dataset).composed(),
    )
    release = Release(certificate=certificate, data=drawn.data, classes=drawn.classes, members=drawn.members)
    return Publication(release, _key(dataset, drawn, noise))


def _key(dataset: Dataset, drawn: Drawn, noise: Noise) -> Key:
    """Make the key: which dataset row each released one is of, if any, and whose data they are."""
    columns = {name: np.zeros(0, dtype=np.int64) for name in ("row", "source_row")}
    if drawn.rows is not None:
        # key : a line per source row, so several for a row of merged ones
        parts = dataset.parts
        row, position = parts.of(drawn.rows)
        columns = {"row": row, "source_row": parts.source_rows[position]}
        if drawn.class_id is not None:
            columns["class_id"] = drawn.class_id[row]
        for attribute in dataset.schema.identifiers:
            columns[attribute.name] = parts.column(attribute.name).take(pa.array(position))
    salt = noise.draw_bytes(32)
    return Key(table=pa.table(columns), salt=salt, input_digest=dataset.keyed_digest(salt), facts=drawn.facts)
