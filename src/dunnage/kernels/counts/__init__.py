# SPDX-License-Identifier: Apache-2.0
"""Kernels of private counts, on bare arrays: projection, tails of noise, rounding, trees."""
