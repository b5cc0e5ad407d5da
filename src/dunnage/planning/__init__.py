# SPDX-License-Identifier: Apache-2.0
"""Planning: Release in, Plan out. Nothing in here can reach private rows; an import contract sees to it."""
