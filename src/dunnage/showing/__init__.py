# SPDX-License-Identifier: Apache-2.0
"""What people read: the text of ``dunnage show``, pages, and the figures on them."""

from dunnage.showing.text import dry_run_text, headlines, policy_text, release_text, shown, task_text

__all__ = ["dry_run_text", "headlines", "policy_text", "release_text", "shown", "task_text"]
