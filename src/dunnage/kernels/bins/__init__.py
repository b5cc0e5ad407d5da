# SPDX-License-Identifier: Apache-2.0
"""Packing kernels on bare numbers: no release, no privacy, only whole numbers, patterns and probabilities.

Searches here use a seed, outside ``noise``. On released numbers, privacy does not depend on it. A caller that passes
private numbers and publishes the result must take the seed from ``Noise``.
"""
