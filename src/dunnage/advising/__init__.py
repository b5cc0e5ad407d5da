# SPDX-License-Identifier: Apache-2.0
"""advise: what policies cost in the unit of the decision, and which of them to take."""
