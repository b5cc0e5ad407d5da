# SPDX-License-Identifier: Apache-2.0
"""Plain or foreign ways to the same answers, which tests compare with."""
