# SPDX-License-Identifier: Apache-2.0
"""The web side: a collector that vehicles report to, with its routes, roles and pages. An extra: ``dunnage[serve]``."""
