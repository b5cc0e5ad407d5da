# SPDX-License-Identifier: Apache-2.0
"""What runs on a truck: a device perturbs what it knows before anything leaves it.

Standard library alone. Nothing is imported here: a device loads only what it needs.
"""
