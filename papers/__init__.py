# SPDX-License-Identifier: Apache-2.0
"""Reproductions: each paper's tables, figures and quoted numbers, the paper's values beside ours."""
