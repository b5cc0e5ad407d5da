# SPDX-License-Identifier: Apache-2.0
"""prove: what mechanisms really give away, found without trusting what they say of themselves."""
