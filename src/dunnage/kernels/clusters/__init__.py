# SPDX-License-Identifier: Apache-2.0
"""Kernels that group records into classes of least distortion: bare numbers, no dataset, no privacy."""
