# SPDX-License-Identifier: Apache-2.0
"""advise: what policies cost in the unit of the decision, and which one to choose.

A goal (:class:`~dunnage.advising.sweep.Goal`) names candidates and measures one of them once; ``advice.advise``
sweeps them and makes a :class:`~dunnage.advising.frontier.Frontier`.
"""
