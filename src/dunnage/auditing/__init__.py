# SPDX-License-Identifier: Apache-2.0
"""Auditing: the owner compares a release or a plan with the truth. The result is private."""
