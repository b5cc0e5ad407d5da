# SPDX-License-Identifier: Apache-2.0
"""Run commands as a user does, and compare all that is printed and written with what was recorded.

A scenario is a function of a ``Here``. It knows nothing of the package but its command line and its root names.
``pytest tests/scenarios --record`` (or DUNNAGE_RECORD=1) writes what is recorded anew.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import getpass
import hashlib
import html.parser
import io
import json
import os
import re
import secrets
import shlex
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
from scipy import optimize

import dunnage as dn
from dunnage.cli import main

RECORDED = Path(__file__).parent / "recorded"
HEX = re.compile(r"(?<![0-9A-Za-z_.-])(?=[0-9a-f]*[0-9])[0-9a-f]{8,128}(?![0-9A-Za-z_.-])")
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?")
DAY = re.compile(r"(?m)^\d{4}-\d\d-\d\d$")
SECONDS = re.compile(r'("(?:\w+_)?seconds": )[\d.e+-]+')
TICK = 1e-4  # seconds
REPEATING = {"certificate.html", "loading.html", "verify.html"}  # pages with tests of their own
TEXTS = {".csv", ".md", ".toml", ".txt", ".jsonl", ".pem", ".xyc"}


class Steady:
    """Bytes in place of the system's entropy: the same in every run, each length a stream of its own.

    Other packages, and we ourselves unless ``steady``, still get the system's.
    """

    def __init__(self, *, steady: bool) -> None:
        self.calls: Counter[int] = Counter()
        self.source = os.urandom
        self.steady = steady

    def __call__(self, size: int) -> bytes:
        if sys._getframe(1).f_globals["__name__"].partition(".")[0] != "dunnage":
            return self.source(size)
        self.calls[size] += 1
        key = f"{size} {self.calls[size]}".encode()
        return hashlib.shake_256(key).digest(size) if self.steady else self.source(size)


@contextlib.contextmanager
def steady_entropy() -> Iterator[None]:
    """Let all noise come from steady bytes; words that were drawn ahead, before or meanwhile, are not used."""
    try:
        with mock.patch.object(os, "urandom", Steady(steady=True)):
            draw_anew()
            yield
    finally:
        with mock.patch.object(os, "urandom", Steady(steady=False)):
            draw_anew()


def draw_anew() -> None:
    while not os.urandom.calls:  # type: ignore[attr-defined]
        dn.Noise().bits(64)


class Ticking:
    """A clock that goes on by one step whenever it is read: on a busy machine searches get as far as on an idle one."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += TICK
        return self.seconds


def patient(solve: Callable[..., Any]) -> Callable[..., Any]:
    """Give a solver, whose clock is not ours, as long as it takes: its limit would come early on a busy machine."""
    return lambda *given, options=None, **more: solve(*given, options={**(options or {}), "time_limit": 600.0}, **more)


def named_hex(size: int = 32, make: Callable[[int], str] = secrets.token_hex) -> str:
    """Make a random name that is always seen as one: with a letter and a digit."""
    return f"a0{make(size)[2:]}"


class Page(html.parser.HTMLParser):
    """The visible text of a page, and how many tags of each kind it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: Counter[str] = Counter()
        self.hidden = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags[tag] += 1
        self.hidden += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if data.strip() and not self.hidden:
            self.words.append(" ".join(data.split()))

    def __str__(self) -> str:
        tags = ", ".join(f"{tag} {number}" for tag, number in sorted(self.tags.items()))
        return "\n".join([*self.words, f"(tags: {tags})"])


def run_main(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process: exit code, what it printed, what it complained of."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    told = ""
    with (
        mock.patch.object(sys, "argv", ["dunnage", *map(str, arguments)]),
        mock.patch.object(sys.modules["__main__"], "__package__", None, create=True),  # help names the program by it
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except Exception as error:
            code, told = -1, f"(raised {type(error).__name__}: {error})\n"
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return code, texts[0], texts[1] + told


def in_order(out: str) -> str:
    """Return JSON with its keys in order: programs read them by name."""
    try:
        content = json.loads(out)
    except ValueError:
        return out
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) if isinstance(content, dict) else out


def spoken(err: str) -> list[str]:
    """Return what a command complained of, without its progress, which depends on the machine."""
    return [line for line in err.splitlines() if not line.startswith("progress: ")]


class Here:
    """A folder in which commands run, and the tale of what they did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tale: list[str] = []
        self.given: dict[str, bytes] = {}
        self.unread: list[str] = []

    def run(self, *arguments: object, quiet: bool = False) -> str:
        """Run a command and tell of it; quietly: only its exit code."""
        code, out, err = run_main(*arguments)
        lines = [f"$ dunnage {shlex.join(map(str, arguments))}", f"exit {code}"]
        if not quiet:
            lines += [f"| {line}" for line in in_order(out).splitlines()] + [f"! {line}" for line in spoken(err)]
        self.tale.append("\n".join(lines))
        return out

    def line(self, command: str, *, quiet: bool = False) -> str:
        """Run a command as one would type it."""
        return self.run(*shlex.split(command), quiet=quiet)

    def lines(self, commands: str) -> None:
        """Run several, one a line."""
        for command in commands.strip().splitlines():
            if command.strip():
                self.line(command.strip())

    def say(self, *words: object) -> None:
        """Tell of something that is not a command."""
        self.tale.append("= " + "\n= ".join(" ".join(map(str, words)).splitlines()))

    def write(self, name: str, text: str) -> None:
        """Write a file that is given, and so told of only if a command changes it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.given[name] = path.read_bytes()

    def take(self, source: Path) -> None:
        """Copy all files of a folder here, as given."""
        for path in sorted(source.rglob("*")):
            if path.is_file():
                name = str(path.relative_to(source))
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self.folder / name)
                self.given[name] = path.read_bytes()

    def leave_out(self, *patterns: str) -> None:
        """Tell only that files of these patterns are there."""
        self.unread += patterns

    def files(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_file() and path.read_bytes() != self.given.get(name):
                yield name, path

    def told(self) -> str:
        """Return the whole tale: commands, then files."""
        parts = list(self.tale)
        for name, path in self.files():
            private = " (private)" if not path.stat().st_mode & 0o077 else ""
            left_out = any(Path(name).match(pattern) for pattern in self.unread)
            text = "(not read)" if left_out else text_of(path)
            parts.append(f"--- {name}{private}\n" + text.rstrip("\n"))
        return "\n\n".join(parts) + "\n"


def text_of(path: Path) -> str:
    """Return what a file says, as text."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        schema = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
        rows = [" | ".join(map(str, row.values())) for row in table.to_pylist()]
        return "\n".join([schema, *rows])
    if path.name in REPEATING:
        return "(says what the files beside it say)"
    if path.suffix == ".geojson":
        return "\n".join(json.dumps(feature, sort_keys=True) for feature in json.loads(path.read_text())["features"])
    if path.suffix == ".json":
        with contextlib.suppress(ValueError):
            return json.dumps(json.loads(path.read_text()), indent=1, sort_keys=True, ensure_ascii=False)
    if path.suffix == ".csv" and "seconds" in path.read_text().partition("\n")[0].split(","):
        return changed_rows(path.read_text(), lambda rows: [row.update(seconds="<seconds>") for row in rows])
    if path.suffix == ".html":
        return str(Page(path.read_text()))
    data = path.read_bytes()
    if data.startswith(b"SQLite format 3"):
        return ledger_text(path)
    if path.suffix in TEXTS or b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode()
    return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def ledger_text(path: Path) -> str:
    """Return all rows of a database."""
    lines = []
    with contextlib.closing(sqlite3.connect(path)) as base:
        for (name,) in base.execute("select name from sqlite_master where type = 'table' order by name").fetchall():
            found = base.execute(f"select * from {name}")
            columns = [column[0] for column in found.description]
            lines.append(f"{name}: {', '.join(columns)}")
            for row in found.fetchall():
                cells = ["<who>" if key == "who" else str(cell) for key, cell in zip(columns, row, strict=True)]
                lines.append("  " + " | ".join(cells))
    return "\n".join(lines)


def normal(text: str, here: Here, known: str) -> str:
    """Replace what varies from run to run; a digest that was recorded as it is stays as it is."""
    now = datetime.now(UTC)
    near = {(now + timedelta(days=days)).strftime("%Y-%m-%d") for days in (-1, 0, 1)}
    text = text.replace(str(here.folder), "<here>").replace(dn.__version__, "<version>")
    text = TIME.sub(lambda found: "<time>" if found[0][:10] in near else found[0], text)
    text = DAY.sub(lambda found: "<today>" if found[0] in near else found[0], text)
    text = SECONDS.sub(r"\1<seconds>", text)
    text = re.sub(r'"machine":"[^"]*"', '"machine":"<machine>"', text)  # where a run wrote
    text = re.sub(r"^! WARNING: compiling .*\n", "", text, flags=re.M)  # only where nothing was compiled before
    text = re.sub(
        r"(Seconds +)[\d.]+|\b(in )[\d.]+(?= s(?:econds)?\b)|(seconds=)[\d.e-]+",
        lambda found: "".join(filter(None, found.groups())) + "<seconds>",
        text,
    )
    text = re.sub(rf"\bby {re.escape(getpass.getuser())}\b", "by <who>", text)
    digests, same = {}, {}
    for name, path in reversed(list(everything(here.folder))):
        data = path.read_bytes()
        # Texts of releases that differ in times and digests alone share a name, whichever second they were written in.
        shape = HEX.sub("", TIME.sub("", data.decode())) if path.name in ("README.md", "certificate.html") else data
        digests[hashlib.sha256(data).hexdigest()] = same.setdefault(shape, name)
    names: dict[str, str] = {}
    kept = set(HEX.findall(known))

    def rename(found: re.Match[str]) -> str:
        word = found[0]
        if word.isdigit() and len(word) < 32:
            return word  # a number
        for digest, name in digests.items():
            if len(word) >= 12 and digest.startswith(word):
                return f"<sha256 of {name}>"
        if word in kept:
            return word
        for longer, name in names.items():
            if longer.startswith(word):
                return name
        return names.setdefault(word, f"<hex {len(names) + 1}>")

    return HEX.sub(rename, text)


def everything(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path


Scenario = Callable[[Here], None]


def play(scenario: Scenario, folder: Path) -> tuple[Here, str]:
    """Run a scenario in a new folder, with steady bytes for entropy, and return what it told."""
    folder.mkdir(parents=True)
    here = Here(folder)
    before = Path.cwd()
    mask = os.umask(0o022)
    surroundings = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC"}
    os.chdir(folder)
    try:
        with (
            mock.patch.dict(os.environ, surroundings),
            mock.patch.object(secrets, "token_hex", named_hex),
            mock.patch.object(time, "monotonic", Ticking()),
            mock.patch.multiple(optimize, milp=patient(optimize.milp), linprog=patient(optimize.linprog)),
            steady_entropy(),
        ):
            scenario(here)
    finally:
        os.chdir(before)
        os.umask(mask)
    return here, here.told()


def check(name: str, scenario: Scenario, folder: Path, *, record: bool) -> None:
    """Compare what a scenario tells with what was recorded; or record it."""
    place = RECORDED / f"{name}.txt"
    here, told = play(scenario, folder / name)
    if record:
        time.sleep(1.2)  # no second of the first run comes again
        other, again = play(scenario, folder / "again" / name)
        first, second = set(HEX.findall(normal_paths(told, here))), set(HEX.findall(normal_paths(again, other)))
        known = "\n".join(sorted(first & second))
        recorded = normal(told, here, known)
        compare(name, recorded, normal(again, other, known))
        place.write_text(recorded, encoding="utf-8")
        return
    known = place.read_text(encoding="utf-8") if place.exists() else ""
    compare(name, known, normal(told, here, known))


def normal_paths(text: str, here: Here) -> str:
    return text.replace(str(here.folder), "<here>")


def steady(text: str) -> str:
    """Leave out the last digits, which depend on how many numbers a processor adds at once."""
    text = re.sub(r'("kkt_residual": ?)[\d.e-]+', r"\1<rounding>", text)
    return re.sub(r"\d+\.\d{9,}(e[+-]\d+)?", lambda found: f"{float(found[0]):.11g}", text)


def compare(name: str, recorded: str, told: str) -> None:
    if recorded != told and steady(recorded) != steady(told):
        lines = difflib.unified_diff(
            recorded.splitlines(), told.splitlines(), f"recorded/{name}.txt", "now", lineterm="", n=2
        )
        raise AssertionError("\n".join([f"{name} tells something else than was recorded:", *list(lines)[:200]]))


def changed_rows(text: str, change: Callable[[list[dict[str, str]]], object]) -> str:
    """Change rows of a CSV text."""
    rows = list(csv.DictReader(io.StringIO(text)))
    change(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
