# SPDX-License-Identifier: Apache-2.0
"""Kinds of release: each owns its tables and columns, what is counted again, and what people are told of it.

Releases, verification and texts loop over kinds and ask them; none of these knows a mechanism by name.
"""

from __future__ import annotations

from dunnage.model.certificate import Certificate
from dunnage.model.guarantees import KAnonymity, SampledDP
from dunnage.release.kinds.common import Kind
from dunnage.release.kinds.counts import CountsKind
from dunnage.release.kinds.estimates import EstimatesKind
from dunnage.release.kinds.rows import ClassesKind, NoisyKind

ROWS, COUNTS, ESTIMATES = "rows", "counts", "estimates"
"""What a certificate calls its kind of release."""
CLASSES, NOISY = ClassesKind(), NoisyKind()
_OTHERS: dict[str, Kind] = {COUNTS: CountsKind(), ESTIMATES: EstimatesKind()}


def kind_of(certificate: Certificate) -> Kind | None:
    """Return the kind of a release; None for one that this version does not know."""
    if certificate.kind == ROWS:
        # Records are told by classes that look alike, or by noise.
        return CLASSES if isinstance(certificate.guarantee, KAnonymity | SampledDP) else NOISY
    return _OTHERS.get(certificate.kind)
