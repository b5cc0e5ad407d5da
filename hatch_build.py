# SPDX-License-Identifier: Apache-2.0
"""What a build adds: a bill of materials (CycloneDX) of the versions that were tested, from ``constraints.txt``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PINNED = re.compile(
    r"(?m)^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s\\]+)(?P<hashes>(?:[ \\\n]+--hash=sha256:[0-9a-f]+)*)"
)


def bill(constraints: str, version: str) -> dict[str, Any]:
    """Return the bill of materials: every pinned package, with the digests of its files."""
    components = []
    for match in PINNED.finditer(constraints):
        name, number = match["name"].lower().replace("_", "-"), match["version"]
        digests = re.findall(r"sha256:([0-9a-f]+)", match["hashes"])
        components.append(
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}@{number}",
                "purl": f"pkg:pypi/{name}@{number}",
                "name": name,
                "version": number,
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
            }
        )
    own = {"type": "library", "bom-ref": "dunnage", "name": "dunnage", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
    }


class Bill(BuildHookInterface):  # type: ignore[misc]
    """Puts the bill of materials into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        made = bill((Path(self.root) / "constraints.txt").read_text(encoding="utf-8"), self.metadata.version)
        path = Path(self.directory) / "sbom.cdx.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        build_data["force_include"][str(path)] = "dunnage/sbom.cdx.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        (Path(self.directory) / "sbom.cdx.json").unlink(missing_ok=True)
