# SPDX-License-Identifier: Apache-2.0
"""prove: what mechanisms really reveal, measured without trusting what they say about themselves."""
