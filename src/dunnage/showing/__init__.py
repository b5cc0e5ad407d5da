# SPDX-License-Identifier: Apache-2.0
"""What ``dunnage show`` tells a person, of every kind of file and folder that commands write or read."""

from dunnage.showing.paths import shown
from dunnage.showing.texts import (
    dry_run_text,
    foresight_text,
    guarantee_words,
    headlines,
    interval_picture,
    label_list,
    policy_text,
    promise_text,
    release_text,
    statement_text,
    task_text,
)

__all__ = [
    "dry_run_text",
    "foresight_text",
    "guarantee_words",
    "headlines",
    "interval_picture",
    "label_list",
    "policy_text",
    "promise_text",
    "release_text",
    "shown",
    "statement_text",
    "task_text",
]
