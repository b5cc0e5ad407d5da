# SPDX-License-Identifier: Apache-2.0
"""The platform's side of local differential privacy: files of reports, tallies and estimates; identity records.

Nothing is imported here: a verifier that asks for ``promises`` must not load what reads rows.
"""
