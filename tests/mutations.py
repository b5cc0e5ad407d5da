# SPDX-License-Identifier: Apache-2.0
"""Faults that tests must catch: ``python -m tests.mutations [first [last]]`` puts each into a copy of the source.

For each fault it runs only the tests that should catch it, in their quick form, and says which it survived.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCALAR = "laws/test_noise_laws.py -k scalar"
FORGED = "test_forgeries.py::test_every_changed_leaf_of_a_certificate_is_seen"
FAULTS = [  # file below src/dunnage, what it says, what it says with the fault, tests
    ("noise/source.py", "self.bits(num_bits)) >= n:", "self.bits(num_bits)) > n:", SCALAR),
    ("noise/source.py", "return x < 0\n", "return x >= 0\n", SCALAR),
    ("noise/source.py", "if magnitude or not negative:", "if magnitude or negative in (0, 1):", SCALAR),
    (
        "noise/source.py",
        "Fraction((abs(value) * bottom * scale - top) ** 2, 2 *",
        "Fraction((abs(value) * bottom * scale - top) ** 2, 3 *",
        SCALAR,
    ),
    ("noise/source.py", "self._below(last + 1)", "self._below(last)", "laws/test_noise_laws.py -k permutation"),
    (
        "kernels/counts/laplace.py",
        "noise, 1 / (2 * self.scale), size",
        "noise, 1 / self.scale, size",
        "test_noisy_counts.py -k have_the_law",
    ),
    ("kernels/counts/laplace.py", "-1 - sizes, sizes", "-sizes, sizes", "test_noisy_counts.py -k have_the_law"),
    (
        "mechanisms/counts.py",
        "scale = sensitivity / epsilon",
        "scale = sensitivity / (2 * epsilon)",
        "test_proving.py -k test_the_short_desk laws/test_output_laws.py",
    ),
    ("ledger.py", "then.within(budget.limit) if", "True if", "test_ledger.py"),
    ("ledger.py", "if not self.again and (repeat", "if self.again and (repeat", "test_ledger.py"),
    ("verification.py", '_check(same(*meanings), "the odds', '_check(True, "the odds', FORGED),
    ("verification.py", "_check(may_hold,", "_check(True,", FORGED),
    ("verification.py", "        _check_promise(certificate)\n", "        certificate.plain()\n", FORGED),
    ("verification.py", "        yield check_estimate_lines(release)\n", "", "test_forgeries.py -k estimates"),
    ("verification.py", "        yield from release.owner.recount(release)\n", "", "test_forgeries.py"),
    ("kernels/bins/boxes.py", "(1 - 1e-9) - 1e-9))", "(1 - 1e-9) + 0.3))", "test_boxes.py"),
    ("kernels/bins/boxes.py", "1.0 / layers", "2.0 / layers", "test_boxes.py"),
    (
        "kernels/bins/spreading.py",
        "if not surely and budget <= 0.0:",
        "if not surely and budget < 0.0:",
        "test_fleets.py test_spreading.py",
    ),
    (
        "kernels/counts/projection.py",
        "return total + count * rest",
        "return total + (count + 1) * rest",
        "test_projection.py",
    ),
    (
        "kernels/counts/projection.py",
        "partial[start + count - 1] + count * theta",
        "partial[start + count - 1] + theta",
        "test_projection.py",
    ),
    (
        "collecting/kernels.py",
        "counts[place, rows[row, place]] += 1",
        "counts[place, rows[row, place]] += row % 50 > 0",
        "test_local_batch.py test_local_estimate.py",
    ),
    (
        "collecting/kernels.py",
        "        counts[symbol] += 1",
        "        counts[symbol] += symbol != 3",
        "test_local_batch.py test_local_estimate.py",
    ),
    (
        "collecting/estimate.py",
        "tail = np.asarray(counts, dtype=np.float64), (1 - confidence) / 2",
        "tail = np.asarray(counts, dtype=np.float64), 1 - confidence",
        "test_local_estimate.py",
    ),
    (
        "collecting/estimate.py",
        "pairs[:, :, 0] - pairs[:, :, 1]]",
        "pairs[:, :, 1] - pairs[:, :, 0]]",
        "test_local_estimate.py",
    ),
]


def caught(file: str, said: str, fault: str, tests: str) -> bool:
    """Return whether the tests fail on a copy of the source with the fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))
        path = copy / "dunnage" / file
        text = path.read_text()
        assert text.count(said) == 1, f"{file} says {text.count(said)} times: {said}"
        path.write_text(text.replace(said, fault))
        words = [f"tests/{word}" if word.partition("::")[0].endswith(".py") else word for word in tests.split()]
        command = [sys.executable, "-m", "pytest", "-n", "0", "-x", *words]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False).returncode == 1


def main() -> None:
    first, last = [*map(int, sys.argv[1:]), 0, len(FAULTS)][:2] if len(sys.argv) != 2 else (int(sys.argv[1]), None)
    chosen = FAULTS[first:last]
    number = 0
    for fault in chosen:
        found = caught(*fault)
        number += found
        sys.stdout.write(f"{'caught' if found else 'SURVIVED'} {fault[0]}: {fault[2]!r}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{number} of {len(chosen)} faults caught\n")


if __name__ == "__main__":
    main()
