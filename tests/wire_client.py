# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the wire format, from docs/wire-format.md alone: nothing of Dunnage is imported.

``python tests/wire_client.py docs/wire-vectors.json`` reproduces all vectors, or says which one differs.
"""

import base64
import datetime
import hashlib
import itertools
import json
import math
import struct
import sys
import zlib


def varint(number):
    groups = []
    while True:
        number, group = divmod(number, 128)
        groups.append(group | (128 if number else 0))
        if not number:
            return bytes(groups)


def binary(task, fields, report_id, payload):
    body = b"\x02" + task + b"".join(varint(fields[name]) for name in ("purpose", "tier", "day", "slot"))
    body += report_id + varint(len(payload)) + payload
    return body + struct.pack(">I", zlib.crc32(body))


def as_json(task, fields, report_id, payload):
    day = datetime.date(1970, 1, 1) + datetime.timedelta(days=fields["day"])
    check = binary(task, fields, report_id, payload)[-4:].hex()
    parts = {"format": 2, "task": task.hex(), "purpose": fields["purpose"], "tier": fields["tier"]}
    parts.update(day=day.isoformat(), slot=fields["slot"], id=report_id.hex())
    parts.update(payload=base64.b64encode(payload).decode(), crc32=check)
    return json.dumps(parts, separators=(",", ":"))


def cell(box, levels, longitude, latitude):
    west, south, east, north = map(float, box)
    size = 2 ** (levels - 1)
    if not (west <= longitude <= east and south <= latitude <= north):
        return size * size
    column = min(int((longitude - west) * size / (east - west)), size - 1)
    row = min(int((latitude - south) * size / (north - south)), size - 1)
    number = 0
    for bit in range(levels - 2, -1, -1):  # a bit of the column before a bit of the row, the coarsest first
        number = number * 4 + 2 * (column >> bit & 1) + (row >> bit & 1)
    return number


def normal(rows):
    return [[weight / math.fsum(row) for weight in row] for row in rows]


def chances(law):
    """The chance of each symbol, in order, for each input."""
    name, num, odds = law["law"], law["inputs"], math.exp(float(eval_fraction(law["epsilon"])))
    inputs = range(num)
    if name == "randomised-response":
        return normal([[odds if s == i else 1 for s in inputs] for i in inputs])
    if name == "subset-selection":
        size = max(1, round(num / (odds + 1)))
        sets = [s for s in range(2**num) if bin(s).count("1") == size]
        return normal([[0 if s not in sets else odds if s >> i & 1 else 1 for s in range(2**num)] for i in inputs])
    if name == "optimised-unary":
        bit = [[(1 / 2 if j == i else 1 / (odds + 1)) for j in inputs] for i in inputs]
        return [
            [math.prod(p if s >> j & 1 else 1 - p for j, p in enumerate(row)) for s in range(2**num)] for row in bit
        ]
    if name == "symmetric-unary":
        keep = math.sqrt(odds) / (math.sqrt(odds) + 1)
        bit = [[keep if j == i else 1 - keep for j in inputs] for i in inputs]
        return [
            [math.prod(p if s >> j & 1 else 1 - p for j, p in enumerate(row)) for s in range(2**num)] for row in bit
        ]
    if name == "hadamard":
        blocks, columns = 1, 1
        while 2 * blocks <= 2 * num and odds > 1 + 17 * blocks / 6:
            blocks *= 2
        while columns <= -(-num // blocks):
            columns *= 2
        even = [
            [
                s // columns == i % blocks and bin(s % columns & 1 + i // blocks).count("1") % 2 == 0
                for s in range(blocks * columns)
            ]
            for i in inputs
        ]
        return normal([[odds if own else 1 for own in row] for row in even])
    if name == "projective":
        prime, dimension = law["geometry"]

        def points(size):  # (1, digits), then (0, point of one dimension less)
            if size == 1:
                return [(1,)]
            first = [(1, *rest) for rest in itertools.product(range(prime), repeat=size - 1)]
            return first + [(0, *rest) for rest in points(size - 1)]

        own = [(first, *rest) for rest in points(dimension - 1) for first in range(prime)]
        own.append((1,) + (0,) * (dimension - 1))
        product = lambda a, b: sum(x * y for x, y in zip(a, b)) % prime  # noqa: B905, E731
        return normal([[1 if product(own[i], s) else odds for s in points(dimension)] for i in inputs])
    if name == "disk":
        size, reach = law["columns"], dict(map(tuple, law["reach"]))
        near = lambda x, y: y in reach and abs(x) <= reach[y]  # noqa: E731
        own = [(x, y) for y in range(size) for x in range(size)]
        around = range(-max(reach), size + max(reach)), range(-reach[0], size + reach[0])
        reports = [(x, y) for y in around[0] for x in around[1] if any(near(x - a, y - b) for a, b in own)]
        disk = sum(2 * wide + 1 for wide in reach.values())
        by_code = sorted(
            own, key=lambda at: sum((at[0] >> b & 1) * 2 * 4**b + (at[1] >> b & 1) * 4**b for b in range(9))
        )
        rows = [[odds if near(x - a, y - b) else 1 for x, y in reports] + [disk] for a, b in by_code]
        return normal([*rows, [1] * len(reports) + [disk * odds]])
    if name in ("piecewise", "square-wave"):
        steps, stride, half = law["steps"], law["stride"], law["half"]
        last = steps * stride + half
        symbols = range(-last, last + 1)
        return normal([[odds if abs(s - i * stride) <= half else 1 for s in symbols] for i in range(-steps, steps + 1)])
    if name == "duchi":
        return normal([[odds, 1], [1, odds]])
    if name == "designed":
        return normal([[w * (odds if a <= i < b else 1) for a, b, w in law["intervals"]] for i in inputs])
    raise ValueError(name)


def eval_fraction(text):
    top, _, bottom = text.partition("/")
    return int(top) / int(bottom or 1)


def main(path):
    with open(path) as source:
        vectors = json.load(source)
    canonical = json.dumps(vectors["task"], sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(canonical).hexdigest() == vectors["digest"], "digest"
    prefix = bytes.fromhex(vectors["digest"])[:8]
    for report in vectors["reports"]:
        parts = prefix, report, bytes.fromhex(report["id"]), bytes.fromhex(report["payload"])
        assert binary(*parts).hex() == report["binary"], report
        assert as_json(*parts) == report["json"], report
    grid = vectors["task"]["purposes"][0]["grid"]
    for longitude, latitude, number in vectors["cells"]:
        assert cell(grid["box"], grid["levels"], longitude, latitude) == number, (longitude, latitude)
    for law in vectors["laws"]:
        mine = chances(law)
        assert len(mine) == len(law["chances"]), law["law"]
        for row, due in zip(mine, law["chances"]):  # noqa: B905
            assert len(row) == len(due), law["law"]
            assert all(abs(a - b) < 1e-11 for a, b in zip(row, due)), law["law"]  # noqa: B905
        if law["law"] == "designed":
            points = (law["inputs"] - 1) / 2
            for index, row in enumerate(mine):
                mean = math.fsum(p * v for p, v in zip(row, law["values"]))  # noqa: B905
                assert abs(mean - (index / points - 1)) < 1e-9
    sys.stdout.write(f"{len(vectors['reports'])} reports, {len(vectors['cells'])} cells, {len(vectors['laws'])} laws\n")


if __name__ == "__main__":
    main(sys.argv[1])
