# SPDX-License-Identifier: Apache-2.0
"""Numbers only: packing, clusters, counts, dispatch, and the one interface to linear and integer programming."""
