# SPDX-License-Identifier: Apache-2.0
"""The command line: one sub-command for each verb. It only calls the Python interface.

Exit codes: 0 for success, 1 if a check failed or no plan exists, 2 for bad input or a refusal, 70 for an error that
nobody expected, 130 if interrupted, 141 if the reader of the output has gone. Commands import what they need when they
run, so that ``--help`` stays quick.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from typer import Argument, Option

import dunnage as dn
from dunnage.cli import shared
from dunnage.cli.shared import (
    DEFAULT_DEVICES,
    OptInt,
    OptPath,
    OptText,
    print_cleared,
    print_result,
    print_text,
    progress,
)
from dunnage.errors import BudgetError, DunnageError, InternalError, OutputError, ParameterError
from dunnage.model.guarantees import Basis

# The line that `--help` lists each command with, in the order in which you use them.
_LOOP = {
    "generate": "Generate sample data with a starter policy.",
    "taps": "Infer trips from taps of riders who only tap on.",
    "draft": "Draft a policy for your own file.",
    "advise": "Compare policies by cost and risk, and recommend one.",
    "publish": "Publish private rows under a policy.",
    "show": "Show any file or folder that a command reads or writes.",
    "verify": "Verify a release without private data.",
    "pack": "Pack released rows into as few trucks as possible.",
    "size": "Find the smallest shuttle fleet for released counts.",
    "apply": "Apply a plan to the true data and repair overflows.",
    "audit": "Audit a release: attacks, errors and the cost of privacy.",
    "prove": "Check what each mechanism claims and what it gives away.",
    "estimate": "Estimate means, maps and paths from device reports.",
    "alarms": "Raise alarms about a fleet from device reports, with few false ones.",
    "device": "Make tasks and reports for devices; seal identity records.",
    "identity": "Keep identity records that only two people together can open.",
    "studio": "Open the studio: the whole loop in a browser.",
    "serve": "Run the collector that devices report to.",
    "budget": "Show or set the privacy budget in a ledger.",
    "propose": "Propose a release for others to approve.",
    "approve": "Approve a release that somebody else proposed.",
    "refuse": "Refuse a release that somebody else proposed.",
    "ledger": "Show, check, move or share a ledger; set who must approve.",
    "sign": "Sign the limits of your organisation.",
    "export": "Describe a release for catalogues, or for an impact assessment.",
    "demo": "Run all three stories on generated data.",
}


# Commands and the modules that have them, in the order of the documents; no module means this one.
_PLACES = (
    ("draft", ""),
    ("advise", "auditing"),
    ("publish show verify", ""),
    ("pack size apply", "planning"),
    ("audit prove export", "auditing"),
    ("estimate alarms", "devices"),
    ("studio", "studio"),
    ("serve", "devices"),
    ("demo", ""),
    ("propose approve refuse sign", "ledger"),
    ("generate taps", "generate"),
    ("device identity", "devices"),
    ("budget ledger", "ledger"),
)
_MODULE_OF = {name: f"dunnage.cli.{module}".rstrip(".") for names, module in _PLACES for name in names.split()}


class _Commands(Mapping[str, Any]):
    """All commands by name. The module of one is loaded, and its options are built, when it is used."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULE_OF)

    def __len__(self) -> int:
        return len(_MODULE_OF)

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            module = vars(importlib.import_module(_MODULE_OF[name]))
            if (group := module.get(f"{name}_app")) is not None:
                command: Any = typer.main.get_group(group)
            else:
                single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
                single.command(name)(module[name])
                command = typer.main.get_command(single)
            command.name, command.short_help = name, _LOOP[name]
            self._built[name] = command
        return self._built[name]


class _InOrder(typer.core.TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands()  # type: ignore[assignment]  # nothing adds to them

    def list_commands(self, context: Any) -> list[str]:
        return list(_LOOP)


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Publish transport and logistics data privately, plan on what was published, and see what privacy cost.",
    epilog="Example: dunnage demo -o demo-out",
)
_INTERRUPTED, _OUTPUT_CLOSED = 130, 141
_TRACEBACK = "DUNNAGE_TRACEBACK"


def _version(requested: bool) -> None:
    if requested:
        print_text(f"dunnage {dn.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def demo(
    out: Annotated[Path, Option("-o", "--out", help="Demo folder to create; private.")] = Path("demo-out"),
    quick: Annotated[
        bool, Option("--quick", help="A faster, rougher run: fewer points and fewer repetitions.")
    ] = False,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Run the stories of loads, riders and carriers on generated data; one page shows what privacy cost.

    Example: dunnage demo -o demo-out
    """
    from dunnage_demo import run_demo

    with progress() as tell:
        done = run_demo(out, quick=quick, force=force, progress=tell)
    text = "\n".join([*done.lines, f"Page: {done.report} (open it in a browser; it shows true data)"])
    print_result({"report": str(done.report), "stories": list(done.lines)}, text, as_json)


def draft(
    data: Annotated[Path, Argument(help="CSV, Parquet or Excel file; for devices, also a folder of them.")],
    out: Annotated[Path, Option("-o", "--out", help="Policy file to write.")],
    story: Annotated[
        OptText, Option(help="What a row stands for: rows | trips | devices. Default: guessed from the column names.")
    ] = None,
    like: Annotated[
        OptPath, Option(help="Policy of an earlier file with the same columns: repeat it, and say what differs.")
    ] = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Draft a policy for your own file from its column names and types. You fill in the blanks.

    What the rows say about persons and dates is printed for you, and is not in the draft.

    Example: dunnage draft parcels.csv -o parcels.toml
    """
    if out.exists() and (not force or out.samefile(data)):
        raise OutputError.taken(out)
    from dunnage.tables.dataset import draft_like, drafted

    says = [f"Draft in {out}. Fill in the blanks; dunnage show {out} lists them."]
    result: dict[str, object] = {"policy": str(out)}
    if like is None:
        text, remarks = drafted(data, story=story)
        # The remarks come from the rows: they are printed for the owner, and the draft does not have them.
        says += ["For you only, from the rows:", *(f"  - {remark}" for remark in remarks)] if remarks else []
        result["owner"] = {"remarks": list(remarks)}
    else:
        from dunnage.publishing import LEDGER_FILE

        if story is not None:
            raise ParameterError("--like repeats a policy, whatever its story. Leave --story out.")
        text, remarks, ready = draft_like(data, like, Path(os.path.abspath(out)).parent)
        says = [f"Draft in {out}, like {like}:", *(f"  {remark}" for remark in remarks)]
        result["remarks"] = list(remarks)
        # A ledger is beside its policy: the draft must not begin a new one, which would forget what was spent.
        before, after = (Path(os.path.abspath(path)).with_name(LEDGER_FILE) for path in (like, out))
        ledger = ["--ledger", os.path.relpath(before)] if before != after and before.exists() else []
        command = ["dunnage", "publish", str(data), "--policy", str(out), *ledger, "--period", "PERIOD", "--dry-run"]
        says += [f"Next: {shlex.join(command)}"] if ready else []
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}. Choose another place.") from None
    print_result(result, "\n".join(says), as_json)


def publish(
    data: Annotated[Path, Argument(help="CSV, Parquet or Excel file with the private rows.")],
    policy: shared.PolicyOption,
    out: Annotated[OptPath, Option("-o", "--out", help="Release folder to create.")] = None,
    period: Annotated[
        OptText, Option(help="Period to publish: 2026-11-15, 2026-W47, 2026-11, or your own label.")
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Check the data and show promise and cost. Spends nothing, always allowed.")
    ] = False,
    ledger: shared.LedgerOption = None,
    sign: shared.SignOption = None,
    again: Annotated[
        bool, Option("--again", help="Spend again: same policy, or a second k-anonymous release of the same period.")
    ] = False,
    resume: Annotated[
        bool, Option("--resume", help="Finish a run that was stopped, or say that nothing left the machine.")
    ] = False,
    known_rows: Annotated[
        str, Option("--known-rows", help="Why rows that another dataset has published may be spent on here too.")
    ] = "",
    anchor: Annotated[OptPath, Option(help="File, best on another disk, that keeps the ledger's head.")] = None,
    allow_noise: Annotated[
        bool, Option("--allow-noise", help="Also publish counts that are hardly better than an empty table.")
    ] = False,
    engine: shared.EngineOption = None,
    seed: Annotated[OptInt, Option(min=0, help="Random seed, for tests only: it voids the certificate.")] = None,
    house: shared.HouseOption = None,
    exception: shared.ExceptionOption = None,
    force: shared.ForceFlag = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Publish private rows under a policy: state the promise, spend the budget, write the release and its key.

    Example: dunnage publish parcels.csv --policy parcels.toml -o release
    """
    noise = dn.Noise(seed=seed)
    if sign is not None:
        from dunnage.model.certificate import load_private_key

        load_private_key(sign)  # fail before the data are read, which may take long
    if out is None and not dry_run:
        raise ParameterError("publish needs a folder to write to. Give -o RELEASE, or try --dry-run.")
    from dunnage.publication import check_output, key_path, stopped_runs
    from dunnage.publishing import clear, mechanism_of, owner_warnings, unplanned_path
    from dunnage.release import describe_release

    if out is not None and not dry_run and not resume:
        for line in stopped_runs(Path(os.path.abspath(out)).parent):
            print_text(f"WARNING: {line}", err=True)
        check_output(out, force=force)
    shared.check_ledger(ledger)
    rules = dn.Policy.read(policy)
    mechanism_of(rules)  # fail before the data are read
    limits = shared.house_of(house, policy.parent, exception)
    if out is None or dry_run:
        from dunnage.showing.text import dry_run_text

        with progress() as tell:
            tell("reading and checking the data")
            dataset = dn.load(data, rules, period=period, engine=engine)
            run = dn.rehearse(dataset, out=out, ledger=ledger, noise=noise, again=again, force=force, progress=tell)
            clearance = clear(dataset, ledger=ledger, house=limits, exception=exception, noise=noise)
        print_cleared(run.to_dict(), dry_run_text(run), as_json, clearance)
        return
    with progress() as tell:
        tell("reading and checking the data")
        dataset = dn.load(data, rules, period=period, engine=engine)
        warnings = list[str]()

        def warn(warning: str) -> None:  # before any budget is spent
            warnings.append(warning)
            print_text(f"WARNING: {warning}", err=True)

        for warning in owner_warnings(dataset):
            warn(warning)
        clearance = clear(dataset, ledger=ledger, house=limits, exception=exception, noise=noise)
        release, key = dn.publish(
            dataset,
            out=out,
            ledger=ledger,
            noise=noise,
            sign=sign,
            force=force,
            again=again,
            house=limits,
            exception=exception,
            allow_noise=allow_noise,
            resume=resume,
            known_rows=known_rows,
            anchor=anchor,
            progress=tell,
            warn=warn,
        )
    if clearance is not None and limits is not None:
        clearance = clearance.joined(limits.clear(limits.of_certificate(release.certificate), exception))
    certificate, num_left_out = release.certificate, dataset.num_left_out
    result = {"release": str(out), "key": str(key_path(out)), **describe_release(release)}
    # These facts are not in the release. They are printed for the owner, who runs the command.
    unplanned = unplanned_path(out)
    named = {"unplanned": str(unplanned)} if unplanned.exists() else {}
    result["owner"] = {"warnings": warnings, "left_out": num_left_out, **key.facts, **named}
    result["rows"] = len(release)
    guarantee = ", ".join(f"{name} {value}" for name, value in certificate.guarantee.to_dict().items())
    lines = [f"Released  {out}", f"Key       {key_path(out)} (private: never share it)"]
    lines += [f"Promises  {guarantee}; basis {certificate.basis}"]
    lines += [f"Proof     {certificate.proof}"] if certificate.proof is not None else []
    lines += release.owner.headline(certificate, len(release), num_left_out)
    counts = {"left out by the policy": num_left_out, **key.facts}
    private = [f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if count]
    are_public = certificate.kind == "rows" and certificate.rows.suppressed is not None
    if private and not are_public:
        lines.append(f"Only you  {', '.join(private)}; keep these numbers to yourself")
    if unplanned.exists():
        which = "is not in the release" if certificate.kind == "rows" else "the policy left out"
        lines.append(f"Unplanned {unplanned} names every row that {which}, and why (private)")
    lines += [f"In clear  {item}" for item in certificate.in_clear]
    print_cleared(result, "\n".join(lines), as_json, clearance)


def show(
    path: Annotated[Path, Argument(help="Any file or folder that a command reads or writes.")],
    devices: Annotated[
        int, Option(min=1, help="Tasks and policies for devices: number of vehicles to predict errors for.")
    ] = DEFAULT_DEVICES,
    precision: Annotated[
        OptText,
        Option(help="Tasks, device policies and estimates: wanted half width of intervals: 5% | speed=1. Default: 5%."),
    ] = None,
    xlsx: Annotated[
        OptPath, Option(help="Releases, plans and settlements: also write the tables to this Excel workbook.")
    ] = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Show what a file or folder is, what it promises and what it contains.

    Folders: release, plan, settlement, audit, frontier, city, GTFS feed, demo. Files: policy, task, reports, tallies,
    ledger, certificate, datapackage, plan or trucks as CSV, public key, key ring, allowance, sealed records, proof,
    figures of a demo. For your data it lists columns and types, never values. For a draft it lists what is still
    blank. It refuses to show keys. For the name of a proof, as a certificate states it, it prints the proof note.

    Example: dunnage show release
    """
    from dunnage.collecting.precision import Precision
    from dunnage.showing import shown

    content, text = shown(path, devices=devices, precision=Precision.read(precision))
    if xlsx is not None:
        from dunnage.tables.columns import write_workbook

        sheets = write_workbook(path, xlsx)
        content, text = {**content, "xlsx": str(xlsx)}, f"{text}\nWorkbook    {xlsx}: {', '.join(sheets)}"
    print_result(content, text, as_json)


def verify(
    release: shared.ReleaseArgument,
    signed_by: Annotated[
        list[Path] | None, Option(help="Public key (PEM) that must have signed the release; repeat it for several.")
    ] = None,
    revoked: Annotated[OptPath, Option(help="List of public keys that no longer count.")] = None,
    require: Annotated[Basis, Option(help="The weakest basis that passes; void is for rehearsals.")] = Basis.CLAIMED,
    engine: shared.EngineOption = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Verify a release without private data: digests first, then every figure that can be recomputed.

    The exit code is 1 if a check fails, or if the release is void.

    Example: dunnage verify release
    """
    with progress() as tell:
        tell("verifying")
        result = dn.verify(release, signed_by=signed_by, revoked=revoked, require=require, engine=engine)
    print_result(result.to_dict(), result.summary(), as_json)
    if not result.ok:
        raise typer.Exit(1)


def _fail(kind: str, message: str, code: int, **details: str) -> int:
    """Print an error for a person, and as JSON if a program requested it, and return the exit code."""
    print_text(f"error: {message}", err=True)
    if "--json" in sys.argv:
        print_text(json.dumps({"error": {"kind": kind, "message": message, **details}}, indent=2))
    return code


def _fail_as(error: BaseException) -> int:
    kind = type(error).__name__
    if isinstance(error, BudgetError):
        return _fail(kind, str(error), error.exit_code, asked=error.asked, spent=error.spent, left=error.left)
    if isinstance(error, DunnageError) and not isinstance(error, InternalError):
        return _fail(kind, str(error), error.exit_code)
    if hasattr(error, "format_message"):  # a usage error of Typer or Click
        if kind == "NoArgsIsHelpError":
            print_text(error.format_message(), err=True)
            return 2
        return _fail("UsageError", f"{error.format_message().rstrip('.')}. See --help.", 2)
    if isinstance(error, OSError):
        return _fail(kind, f"{error.strerror or kind}. Check the files you named, and the free space on the disk.", 2)
    if isinstance(error, MemoryError):
        what = "out of memory. Use a machine with more memory, or publish one period at a time."
        return _fail(kind, what, InternalError.exit_code)
    # The words of an error that nobody expected may hold private values: name its type and place instead.
    if os.environ.get(_TRACEBACK):
        print_text("".join(traceback.format_exception(error)), err=True)
    root = Path(__file__).parents[1]
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(root)]
    bug = str(error) if isinstance(error, InternalError) else type(error).__name__
    place = "".join(f" in {Path(f.filename).relative_to(root.parent)}, line {f.lineno}" for f in own[-1:])
    what = (
        f"unexpected: {bug}{place}. This is a bug in Dunnage {dn.__version__}, not your mistake. Budget that was "
        "spent stays spent; see dunnage budget show. Please report this message and the command to the people who "
        f"gave you Dunnage. For a traceback, set {_TRACEBACK}=1 and run the command again; it may contain private "
        "values, so read it before you share it."
    )
    return _fail(InternalError.__name__, what, InternalError.exit_code)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
        if code == _INTERRUPTED:  # Typer turns the interrupt into its exit code
            raise KeyboardInterrupt
        if sys.stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        kept = "Budget that was spent stays spent; see dunnage budget show."
        if sys.argv[1:2] == ["advise"]:
            kept = "Nothing was spent. Points that are finished are kept: run the same command again to continue."
        return _fail("Interrupted", f"interrupted. {kept}", _INTERRUPTED)
    except (SystemExit, BrokenPipeError):  # Typer makes the one of the other
        raise BrokenPipeError from None
    except BaseException as error:  # a library in Rust panics with an error that is no Exception
        return _fail_as(error)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character: print a mark instead of failing
    hook = sys.unraisablehook
    if not os.environ.get(_TRACEBACK):  # it would print a traceback of what a library could not raise
        sys.unraisablehook = lambda unraisable: None
    try:
        code = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:  # the reader of our output has gone, or the disk that it goes to is full
        code = _OUTPUT_CLOSED if isinstance(error, BrokenPipeError) else 2
        with contextlib.suppress(OSError, ValueError):  # print nothing more, not even on closing
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        sys.unraisablehook = hook
    sys.exit(code)
