# SPDX-License-Identifier: Apache-2.0
"""Local differential privacy: a device perturbs what it knows before anything leaves it.

What a device carries (``client`` and the modules it imports) uses the standard library alone; ``batch``, ``tally``,
``estimate`` and ``identity`` belong to the platform. Nothing is imported here: a device loads only what it needs.
"""
