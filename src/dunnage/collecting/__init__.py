# SPDX-License-Identifier: Apache-2.0
"""The platform's side of local differential privacy: files of reports, tallies and estimates; identity records.

Nothing is imported here: a verifier that imports ``promises`` must not load the code that reads rows.
"""
