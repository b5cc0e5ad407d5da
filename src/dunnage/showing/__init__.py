# SPDX-License-Identifier: Apache-2.0
"""What people read: what ``dunnage show`` tells of every kind of file and folder, pages, and the figures on them."""

from dunnage.showing.files import shown
from dunnage.showing.text import dry_run_text, headlines, policy_text, release_text, task_text

__all__ = ["dry_run_text", "headlines", "policy_text", "release_text", "shown", "task_text"]
