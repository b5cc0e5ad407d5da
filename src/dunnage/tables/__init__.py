# SPDX-License-Identifier: Apache-2.0
"""Tables: one strict reader for all files, the private rows, the columns that are released, and timetables."""
