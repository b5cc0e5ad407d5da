# SPDX-License-Identifier: Apache-2.0
"""Exact randomness, and the only source of it."""
