# SPDX-License-Identifier: Apache-2.0
"""What the device code uses of Python 3.10 and 3.11, for Python 3.9."""

import dataclasses
import enum
import sys
from itertools import zip_longest

NEW = sys.version_info >= (3, 10)
_MISSING = object()


class StrEnum(str, enum.Enum):  # noqa: UP042 - Python 3.9 has no other
    """Members are texts, and are written as such."""

    __str__ = str.__str__
    __format__ = str.__format__


def strict_zip(*columns):
    """Like ``zip`` with ``strict=True``."""
    for line in zip_longest(*columns, fillvalue=_MISSING):
        if any(item is _MISSING for item in line):
            raise ValueError("zip() arguments have different lengths")
        yield line


def bisect_right(lines, value, *, key):
    """Return how many lines at the front have a key of at most a value."""
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if value < key(lines[middle]) else (middle + 1, high)
    return low


def bit_count(number):
    """Return the number of ones in the binary form of a whole number."""
    return bin(number).count("1")


def dataclass(cls=None, *, kw_only=False, **options):
    """Like ``dataclasses.dataclass``; before Python 3.10, ``kw_only`` is done here, for all fields of a class."""
    if cls is None:
        return lambda given: dataclass(given, kw_only=kw_only, **options)
    if NEW:
        return dataclasses.dataclass(cls, kw_only=kw_only, **options)
    if not kw_only:
        return dataclasses.dataclass(cls, **options)
    # Without a default, a field may not follow one that has a default. So all get one, and who leaves out a field that
    # has none of its own is told here.
    needed = set().union(*(getattr(base, "_needed", ()) for base in cls.__mro__[1:]))
    for name, kind in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063 - own ones, in 3.9
        given = cls.__dict__.get(name, _MISSING)
        has_default = given is not _MISSING
        if isinstance(given, dataclasses.Field):
            defaults = (given.default, given.default_factory)
            has_default = not given.init or any(one is not dataclasses.MISSING for one in defaults)
        if str(kind).startswith(("ClassVar", "typing.ClassVar")):
            continue
        needed.discard(name)
        if not has_default:
            needed.add(name)
            if isinstance(given, dataclasses.Field):
                given.default = _MISSING
            else:
                setattr(cls, name, _MISSING)
    made = dataclasses.dataclass(cls, **options)
    made._needed = frozenset(needed)
    start = made.__init__

    def __init__(self, **given):  # noqa: N807 - of the class
        if lacking := needed - given.keys():
            raise TypeError(f"{type(self).__name__} needs {', '.join(sorted(lacking))}")
        start(self, **given)

    made.__init__ = __init__
    for name in needed & cls.__dict__.keys():
        delattr(made, name)  # a field without a default is no attribute of its class
    return made
