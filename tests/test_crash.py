"""Killed at any moment, ``publish`` leaves no folder that is not whole, paid for and verifiable, nor a riddle.

One process is made ready and forks; each child publishes and is killed after a random time. Another is stopped before
each of its steps (every file opened, renamed, linked, synced ...) while its folder is copied: a kill there leaves these
files. What is left is looked at, then resumed: that finishes the release, or says that nothing left the machine.
"""

from __future__ import annotations

import functools
import hashlib
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dunnage as dn
from dunnage.ledger.entries import Entry, Kind
from dunnage.ledger.telling import told
from dunnage.publication import Key, key_path, stopped_runs
from dunnage.samples import PackageSetting, generate_packages

RELEASE = "release"
LEDGER = "ledger.sqlite"
COMMAND = [sys.executable, "-c", "from dunnage.cli import main; main()"]
PUBLISH = ["publish", "parcels.csv", "--policy", "parcels.toml", "-o", RELEASE, "--ledger", LEDGER]
KILLED = -signal.SIGKILL

FORKING = f"""
import contextlib, io, os, random, shutil, signal, subprocess, sys, tempfile, time
import dunnage.cli, fcntl, psycopg, pyarrow.csv, pyarrow.parquet
from dunnage.samples import PackageSetting, generate_packages
from pathlib import Path

PUBLISH = {PUBLISH!r}
# A first run loads what is loaded late, once for all children.
with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
    generate_packages(PackageSetting(size=60, destinations=2, decimals=1), Path("parcels.csv"), seed=1)
    dunnage.cli.app(PUBLISH, standalone_mode=False)

STEPS = {{"os.rename", "os.link", "os.mkdir", "os.rmdir", "os.remove"}}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def copy_at_each_step(place):
    # Copy all files before each call that changes anything on disk, until the process ends.
    count, copying = 0, False
    def step():
        nonlocal count, copying
        if not copying:
            copying, count = True, count + 1
            subprocess.run(["cp", "-a", place, f"{{place}}-{{count}}"], check=True)  # links stay links
            copying = False
    def count_before(module, name):
        true = getattr(module, name)
        def counted(*args, **more):
            step()
            return true(*args, **more)
        setattr(module, name, counted)
    for module, name in ((os, "fsync"), (fcntl, "flock"), (pyarrow.parquet, "write_table"), (pyarrow.csv, "write_csv")):
        count_before(module, name)
    def hook(event, args):
        if event in STEPS or (event == "open" and args[2] & WRITING):
            step()
    sys.addaudithook(hook)

def start(place, options, *, copied=False):
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.chdir(place)
        out = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.argv = ["dunnage", *PUBLISH, *options]
        if os.path.exists("address"):
            sys.argv[sys.argv.index("--ledger") + 1] = Path("address").read_text()
        if copied:
            copy_at_each_step(place)
        dunnage.cli.main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        os._exit(code)

def end(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def at_each_step(template, *options):
    place = Path(shutil.copytree(template, template.with_name(f"{{template.name}}-copied")))
    code = end(start(place, options, copied=True))
    for copy in sorted(place.parent.glob(f"{{place.name}}-*"), key=lambda copy: int(copy.name.rpartition("-")[2])):
        print(copy, -signal.SIGKILL)
    print(place, code, flush=True)

def at_random(template, num, seed):
    began = time.monotonic()
    end(start(shutil.copytree(template, template.with_name("timed")), ["--again"]))
    seconds = time.monotonic() - began
    generator = random.Random(int(seed))
    for number in range(int(num)):
        place = Path(shutil.copytree(template, template.with_name(f"{{template.name}}-{{number}}")))
        pid = start(place, ["--again"])
        time.sleep(generator.uniform(0, 1.1 * seconds))
        os.kill(pid, signal.SIGKILL)
        print(place, end(pid), flush=True)

def again(*places):
    for place in places:
        options = ["--again"] + (["--force"] if (Path(place) / "{RELEASE}").exists() else [])
        print(place, end(start(place, options)), flush=True)

def resume(*places):
    for place in places:
        print(place, end(start(place, ["--resume"])), flush=True)

def killed(first, seed, option, *places):
    # Kill a child in each place; how long one takes is measured in a place of its own, where it ends by itself.
    began, generator = time.monotonic(), random.Random(seed)
    if not (first / "{RELEASE}").exists():
        end(start(first, []))
        PACE.append(time.monotonic() - began)
    for place in places:
        pid = start(place, [] if option == "-" else [option])
        time.sleep(generator.uniform(0, PACE[-1]))
        os.kill(pid, signal.SIGKILL)
        code = end(pid)
        PACE.append(PACE[-1] * (1.1 if code == -signal.SIGKILL else 0.8))  # most are killed before they end
        print(place, code, flush=True)

PACE = []
commands = {{"at_each_step": at_each_step, "at_random": at_random, "again": again, "resume": resume, "killed": killed}}
for line in sys.stdin:
    name, place, *arguments = line.split()
    commands[name](Path(place), *arguments)
    print("done", flush=True)
"""


@functools.cache
def forking() -> subprocess.Popen[str]:
    """The process that forks."""
    # What the machine remembers of ledgers is below each place: a copy of a place is the machine as it was killed.
    env = {**os.environ, "DUNNAGE_STATE": ".state"}
    return subprocess.Popen([sys.executable, "-c", FORKING], stdin=-1, stdout=-1, text=True, env=env)


@pytest.fixture(scope="module", autouse=True)
def _forking_ends() -> Iterator[None]:
    yield
    with forking():  # closes its input, and waits
        forking.cache_clear()


def forked(*arguments: object) -> list[tuple[Path, int]]:
    """Let the forking process do something, and give each place with the exit code of the run there."""
    process = forking()
    print(*arguments, file=process.stdin, flush=True)
    results = []
    while (line := process.stdout.readline()) != "done\n":
        assert line, "the forking process failed"
        place, code = line.rsplit(" ", 1)
        results.append((Path(place), int(code)))
    return results


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a place: kills do not lose what a disk was not yet given."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def template(root: Path) -> Path:
    """Generated packages with a policy, in a folder of their own."""
    return prepare(root / "place", 60)


def prepare(place: Path, size: int) -> Path:
    place.mkdir()
    generate_packages(PackageSetting(size=size, destinations=2, decimals=1), place / "parcels.csv", seed=1)
    return place


VERIFIED: dict[bytes, dn.Certificate] = {}


def _verified(release: Path) -> dn.Certificate:
    """Verify a folder, once for all folders of the same files and bytes: most places have the same old release."""
    digest = hashlib.sha256()
    for path in sorted(release.iterdir()):
        digest.update(repr((path.name, path.read_bytes())).encode())
    if digest.digest() not in VERIFIED:
        assert dn.verify(release).problems == []
        VERIFIED[digest.digest()] = dn.Release.read(release).certificate
    return VERIFIED[digest.digest()]


def check_left(place: Path) -> None:
    """Look at what a killed run left under final names, and at every key."""
    release = place / RELEASE
    if release.exists():
        certificate = _verified(release)
        assert certificate.plain()["spend"]["id"] in dict(spends(place))
        assert Key.read(key_path(release)).certificate_digest == certificate.digest
    left = [
        path for path in place.iterdir() if path.name.startswith(f".{RELEASE}.") and path.name.endswith(".key.partial")
    ]
    sentences = stopped_runs(place)
    assert len(sentences) == len(left)
    for sentence in sentences:
        assert str(release) in sentence
        named = re.findall(rf"{re.escape(str(place))}/\.release\.[0-9a-f]{{12}}[a-z.]*(?<!\.)", sentence)
        assert named
        assert all(os.path.lexists(path) for path in named)
        complete = release.exists() and release.with_name("release.key.parquet").samefile(left[0])
        assert complete is ("are complete" in sentence)
    for path in place.iterdir():
        assert ".key." not in path.name or stat.S_IMODE(path.lstat().st_mode) == 0o600


def address_of(place: Path) -> str:
    """Where the ledger of a place is: a server, or a file in it."""
    return (place / "address").read_text() if (place / "address").exists() else str(place / LEDGER)


def spends(place: Path) -> list[tuple[str, str]]:
    """Each spend of a place, and what the ledger says became of it."""
    address = address_of(place)
    if address == str(place / LEDGER) and not Path(address).exists():
        return []
    with dn.Ledger.open_existing(address) as ledger:
        return list(told(ledger, dn.Policy.read(place / "parcels.toml").dataset).spends.items())


def last_spend(place: Path) -> Entry:
    with dn.Ledger.open_existing(address_of(place)) as ledger:
        history = ledger.history(dn.Policy.read(place / "parcels.toml").dataset)
        return [entry for entry in history if entry.kind == Kind.SPEND][-1]


def check_resumed(places: list[Path]) -> None:
    """Resume in each place: a spend is finished or explained, and pays for one release at most."""
    before, stopped = {place: spends(place) for place in places}, []
    for place, code in forked("resume", *places):
        said, after, release = (place / "output.txt").read_text(encoding="utf-8"), spends(place), place / RELEASE
        check_left(place)
        assert code in (0, 1), said
        assert len(after) == max(1, len(before[place])), "resuming spends only if nothing was spent"
        assert all(words.startswith(("released", "the run was stopped and nothing left")) for _, words in after), after
        if code == 0:
            paid = _verified(release).spend.id
            assert paid == after[-1][0]
            assert after[-1][1].startswith("released")
        else:
            assert "nothing left this machine" in said
            assert after[-1][1].startswith("the run was stopped")
            assert not release.exists() or _verified(release).spend.id != after[-1][0]
            stopped.append(place)
    known = [place for place in stopped if str(place / RELEASE) in last_spend(place).body]  # not copies of places
    for place, code in forked("resume", *known[:1]) if known else ():
        assert code == 1, "it says so again"
        assert "nothing left this machine" in (place / "output.txt").read_text(encoding="utf-8").splitlines()[-1]


def check_again(places: list[Path]) -> None:
    """Publish again in each place; nothing of the killed run may be in the way, or be left."""
    for place, code in forked("again", *places):
        assert code == 0, (place / "output.txt").read_text(encoding="utf-8")
        check_left(place)
        assert (place / RELEASE).exists()
        assert [path.name for path in place.iterdir() if path.name.startswith(".release")] == []
        assert key_path(place / RELEASE).stat().st_nlink == 1


def check_all(results: list[tuple[Path, int]], each: int = 1) -> None:
    for place, _ in results:
        check_left(place)
    killed = [place for place, code in results if code == KILLED][::each]
    check_resumed(killed)
    check_again(killed)


def test_killed_at_each_step(template: Path) -> None:
    results = forked("at_each_step", template)
    assert results[-1][1] == 0
    assert {code for _, code in results[:-1]} == {KILLED}
    assert len(results) > 30  # the steps were found
    begun = [place for place, code in results if code == KILLED and any(place.glob(f".{RELEASE}.*.partial/"))]
    halfway = begun[len(begun) // 2]
    for command in (["budget", "show", str(halfway / LEDGER)], ["publish", *PUBLISH[1:]]):
        done = subprocess.run([*COMMAND, *command], cwd=halfway, capture_output=True, text=True, check=False)
        assert "was stopped while it wrote" in done.stderr, done.stderr
    check_all(results, each=6)


def test_killed_at_each_step_of_replacing(template: Path) -> None:
    for _, code in forked("again", template):
        assert code == 0
    results = forked("at_each_step", template, "--again", "--force")
    assert results[-1][1] == 0
    check_all(results, each=6)


def test_killed_at_random(root: Path) -> None:
    check_all(forked("at_random", prepare(root / "place", 3000), 8, 20261115))


def kill_commands(root: Path, num: int, size: int) -> None:
    """Kill the command itself, from its start to its end."""
    template = prepare(root / "place", size)
    generator = random.Random(num)
    began = time.perf_counter()
    subprocess.run([*COMMAND, *PUBLISH], cwd=template, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    shutil.rmtree(template)
    prepare(template, size)
    places = [Path(shutil.copytree(template, template.with_name(f"place-{number}"))) for number in range(num)]
    for place in places:
        with subprocess.Popen([*COMMAND, *PUBLISH], cwd=place, stdout=-3, stderr=-3) as process:
            time.sleep(generator.uniform(0.5, 1.1) * seconds)
            process.send_signal(signal.SIGKILL)
        check_left(place)
    check_again(places)


@pytest.mark.long
def test_the_command_is_killed_at_random(root: Path) -> None:
    kill_commands(root, 2, 60)


NOISY = """dataset = "{}"
protects = "parcel"
[attributes.id]
role = "identifier"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
resolution = 1
[mechanism]
name = "noisy-values"
epsilon = 50
[budget]
epsilon = 100
neighbours = "replace-one"
"""
# pyarrow loads pandas where it is, which takes longer than all the rest of the command.
WITHOUT_PANDAS = """
import sys

class Missing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing)
from dunnage.cli import main
main()
"""
BARE = [sys.executable, "-c", WITHOUT_PANDAS]


def prepare_noisy(place: Path, address: str) -> Path:
    """A few rows of their own, with a budget for two releases."""
    place.mkdir()
    (place / "parcels.toml").write_text(NOISY.format(place.name))
    (place / "parcels.csv").write_text("id,weight\n" + "".join(f"{place.name}-{n},{n}\n" for n in range(20)))
    if address.startswith("postgresql"):
        (place / "address").write_text(address)
    return place


def kill_anywhere(place: Path, generator: random.Random, pace: list[float], options: list[str]) -> bool:
    """Kill the command itself: a third at any moment since its start, the others once its folder is reserved.

    ``pace`` has the last time from the start to that, which differs with what else the machine does.
    """
    command, began = [*BARE, *PUBLISH[:-1], address_of(place), *options], time.perf_counter()
    environment, early = {**os.environ, "DUNNAGE_STATE": ".state"}, bool(options) or generator.random() < 1 / 3
    with subprocess.Popen(command, cwd=place, stdout=-3, stderr=-3, env=environment) as process:
        while not early and process.poll() is None and not any(place.glob(f".{RELEASE}.*")):
            time.sleep(0.002)
        pace[0] = pace[0] if early else time.perf_counter() - began
        time.sleep(generator.uniform(0, 1.3 * pace[0] if early else 0.4 * pace[0]))
        process.kill()
    return process.returncode == KILLED


def kill_and_resume(root: Path, address: str, num: int, seed: int, *, forks: bool = False) -> int:
    """Kill runs, and a third of those that resume them; then nothing is overspent, unpaid for or unexplained.

    With ``forks`` the runs are children of the process that is ready; otherwise they are commands of their own.
    """
    generator, count = random.Random(seed), 0
    began = time.perf_counter()
    first = prepare_noisy(root / f"first{seed}", address)
    if not forks:
        subprocess.run([*BARE, *PUBLISH[:-1], address_of(first)], cwd=first, check=True, capture_output=True)
    pace = [time.perf_counter() - began]

    def kill(places: list[Path], options: list[str]) -> int:
        if forks:
            codes = [code for _, code in forked("killed", first, generator.random(), *(options or "-"), *places)]
            return codes.count(KILLED)
        return sum(kill_anywhere(place, generator, pace, options) for place in places)

    for batch in range(0, num, 10):
        places = [prepare_noisy(root / f"p{seed}-{n}", address) for n in range(batch, min(batch + 10, num))]
        some = [place for place in places if generator.random() < 1 / 3]
        for chosen, options in ((places, []), (some, ["--resume"])):
            count += kill(chosen, options) if chosen else 0
            for place in chosen:
                check_left(place)
        check_resumed(places)
        check_again(places[:: 4 if forks else 1])
        for place in places:
            with dn.Ledger.open_existing(address_of(place)) as ledger:
                statement = ledger.statement(dn.Policy.read(place / "parcels.toml").dataset)
                assert len(statement.spends) <= 2
                assert not statement.overspent
            shutil.rmtree(place)
        sys.stderr.write(f"{count} killed, {batch + len(places)} runs resumed\n")
    return count


def test_killed_with_a_server(root: Path, postgres: Callable[[], str]) -> None:
    kill_and_resume(root, postgres(), 1, 1)


@pytest.mark.long
def test_the_command_is_killed_on_either_store(root: Path, address: str) -> None:
    """DUNNAGE_KILLS and DUNNAGE_SEED say how many runs, and which."""
    num, seed = int(os.environ.get("DUNNAGE_KILLS", "500")), int(os.environ.get("DUNNAGE_SEED", "1"))
    assert kill_and_resume(root, address, num, seed) > num / 2


@pytest.mark.long
def test_forks_are_killed_on_either_store(root: Path, address: str) -> None:
    num, seed = int(os.environ.get("DUNNAGE_KILLS", "500")), int(os.environ.get("DUNNAGE_SEED", "1"))
    assert kill_and_resume(root, address, num, seed, forks=True) > num / 2


@pytest.mark.long
@pytest.mark.parametrize("size", [60, 3000, 100_000])
def test_killed_hundreds_of_times(tmp_path: Path, size: int) -> None:
    (tmp_path / "forked").mkdir()
    check_all(forked("at_random", prepare(tmp_path / "forked" / "place", size), 480 if size < 100_000 else 40, size))
    (tmp_path / "commands").mkdir()
    kill_commands(tmp_path / "commands", 60 if size < 100_000 else 10, size)
