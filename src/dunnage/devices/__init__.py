# SPDX-License-Identifier: Apache-2.0
"""What runs on a truck: a device perturbs its values before anything leaves it.

This package uses the standard library alone. It imports nothing here, so a device loads only what it needs.
"""
