# SPDX-License-Identifier: Apache-2.0
"""``python -m dunnage``."""

from dunnage.cli import main

if __name__ == "__main__":
    main()
