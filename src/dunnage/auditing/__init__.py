# SPDX-License-Identifier: Apache-2.0
"""Auditing: the owner compares a release or a plan with the truth. What is found is private."""
