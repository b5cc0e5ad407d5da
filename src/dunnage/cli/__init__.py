# SPDX-License-Identifier: Apache-2.0
"""The command line: one sub-command per verb. It only calls the Python interface.

Exit codes: 0 fine, 1 a check failed, 2 bad input or refusal. Imports happen inside the commands, so that ``--help``
stays quick.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
import typer.core

from dunnage.cli.auditing import advise, audit, prove
from dunnage.cli.devices import DEFAULT_DEVICES, device_app, estimate
from dunnage.cli.fleets import apply_fleet, size
from dunnage.cli.generate import generate_app
from dunnage.cli.shared import (
    ForceFlag,
    JsonFlag,
    KeyOption,
    PeriodOption,
    PlanOut,
    PolicyOption,
    ReleaseArgument,
    ShuttleHour,
    SignOption,
    print_result,
    print_text,
    progress,
)
from dunnage.errors import BudgetError, DunnageError, OutputError, ParameterError

if TYPE_CHECKING:
    from dunnage.planning.models import Model

# What each command is listed with, in the order of the loop.
_LOOP = {
    "generate": "Generate data to try things on, with a starter policy.",
    "draft": "Draft a policy for your own file; fill in the blanks.",
    "advise": "Advise a policy: what privacy costs against what it risks.",
    "publish": "Publish private rows under a policy.",
    "show": "Show any file or folder that commands write or read.",
    "verify": "Verify a release from outside.",
    "pack": "Pack released rows into as few trucks as can be found.",
    "size": "Size the smallest fleet of shuttles for released counts.",
    "apply": "Apply a plan to the true data; repair what overflows.",
    "audit": "Audit a release: attacks, errors, what privacy cost.",
    "prove": "Prove mechanisms: what each claims and really gives away.",
    "estimate": "Estimate means, maps and paths from reports.",
    "device": "Make tasks and reports of devices; seal identity records.",
    "budget": "Show or set the budget in a ledger.",
    "demo": "Run all three stories on generated data.",
}


class _InOrder(typer.core.TyperGroup):
    """Commands and groups of commands, listed in the order of the loop."""

    def list_commands(self, context: Any) -> list[str]:
        """Return the names as ``--help`` lists them."""
        return sorted(super().list_commands(context), key=list(_LOOP).index)


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Publish transport and logistics data privately, plan on what was published, and see what privacy cost.",
    epilog="Example: dunnage demo -o demo-out",
)
budget_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show or set the budget in a ledger.",
    epilog="Example: dunnage budget show dunnage-ledger.sqlite",
)

_INTERRUPTED = 130


def _version(asked: bool) -> None:
    if asked:
        from dunnage._version import __version__

        print_text(f"dunnage {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Demo folder to make; private.")] = Path("demo-out"),
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything.")] = False,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Run loads, riders and carriers end to end on generated data, ending on one page of what privacy cost.

    Example: dunnage demo -o demo-out
    """
    from dunnage.demo import run_demo

    with progress() as tell:
        done = run_demo(out, quick=quick, force=force, progress=tell)
    text = "\n".join([*done.lines, f"Page: {done.report} (open it in a browser; it shows true data)"])
    print_result({"report": str(done.report), "stories": list(done.lines)}, text, as_json)


def draft(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Policy file to write.")],
    story: Annotated[
        str | None, typer.Option(help="rows | trips | devices: what rows stand for; by default as column names look.")
    ] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Draft a policy for your own file, from column names and types only; fill in the blanks.

    Example: dunnage draft parcels.csv -o parcels.toml
    """
    from dunnage.tables.load import draft as draft_text

    if out.exists() and (not force or out.samefile(data)):
        raise OutputError(f"{out} exists already. Choose another name, or replace it with --force.")
    text = draft_text(data, story=story)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}. Choose another place.") from None
    print_result({"policy": str(out)}, f"Draft in {out}: fill in what is blank; dunnage show {out} lists it.", as_json)


def publish(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the private rows.")],
    policy: PolicyOption,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Release folder to make.")] = None,
    period: Annotated[str | None, typer.Option(help="Which period, such as 2026-11-15 or 2026-11.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate, promise, show the spend; draw nothing.")
    ] = False,
    ledger: Annotated[
        str | None, typer.Option(help="Ledger file; by default dunnage-ledger.sqlite beside the policy.")
    ] = None,
    sign: SignOption = None,
    again: Annotated[bool, typer.Option("--again", help="Spend once more on the same data and policy.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, for tests: voids the certificate.")] = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Publish private rows under a policy: promise, spend, release, write.

    Example: dunnage publish parcels.csv --policy parcels.toml -o release
    """
    from dunnage.noise import Noise

    noise = Noise(seed=seed)
    if sign is not None:
        from dunnage.certificate import load_private_key

        load_private_key(sign)  # before a long reading of data
    if out is None and not dry_run:
        raise ParameterError("publish needs a folder to write to. Got none. Give -o RELEASE, or look with --dry-run.")
    from dunnage.policy import Policy
    from dunnage.publication import check_output, key_path
    from dunnage.publishing import mechanism_of, owner_warnings, rehearse
    from dunnage.publishing import publish as publish_data
    from dunnage.release import describe_release
    from dunnage.tables.load import load

    if out is not None and not dry_run:
        check_output(out, force=force)
    if ledger is not None and ":memory:" in ledger:
        raise ParameterError("a ledger in memory forgets what was spent. Name a file with --ledger.")
    rules = Policy.read(policy)
    mechanism_of(rules)  # before a long reading of data
    if out is None or dry_run:
        from dunnage.showing import dry_run_text

        with progress() as tell:
            tell("reading and checking the data")
            dataset = load(data, rules, period=period)
            run = rehearse(dataset, out=out, ledger=ledger, noise=noise, again=again, force=force)
        print_result(run.to_dict(), dry_run_text(run), as_json)
        return
    with progress() as tell:
        tell("reading and checking the data")
        dataset = load(data, rules, period=period)
        warnings = owner_warnings(dataset)
        for warning in warnings:  # before anything is spent
            print_text(f"WARNING: {warning}", err=True)
        release, key = publish_data(
            dataset, out=out, ledger=ledger, noise=noise, sign=sign, force=force, again=again, progress=tell
        )
    certificate, num_left_out = release.certificate, dataset.num_left_out
    result = {"release": str(out), "key": str(key_path(out)), **describe_release(release)}
    # Not in the release: printed for the owner, who runs this.
    result["owner"] = {"warnings": list(warnings), "left_out": num_left_out, **key.facts}
    result["rows"] = len(release)
    guarantee = ", ".join(f"{name} {value}" for name, value in certificate.guarantee.to_dict().items())
    lines = [f"Released  {out}", f"Key       {key_path(out)} (keep it: it never leaves you)"]
    lines += [f"Promises  {guarantee}; basis {certificate.basis}"]
    lines += [f"Proof     {certificate.proof}"] if certificate.proof is not None else []
    lines += release.owner.headline(certificate, len(release), num_left_out)
    counts = {"left out by the policy": num_left_out, **key.facts}
    told = [f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if count]
    known = certificate.kind == "rows" and certificate.rows.suppressed is not None  # everybody may know them
    if told and not known:
        lines.append(f"Only you  {', '.join(told)}; tell nobody these numbers")
    lines += [f"In clear  {item}" for item in certificate.in_clear]
    print_result(result, "\n".join(lines), as_json)


def show(
    path: Annotated[Path, typer.Argument(help="Any folder or file that commands write or read.")],
    devices: Annotated[
        int, typer.Option(min=1, help="Task, or policy for devices: how many vehicles to predict errors for.")
    ] = DEFAULT_DEVICES,
    xlsx: Annotated[
        Path | None, typer.Option(help="Release, plan or settlement: also write its tables as an Excel workbook.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show anything that commands write or read: what it is, what it promises, what it says.

    Folders: release, plan, settlement, audit, frontier, city, GTFS feed, demo. Files: policy, task, reports, tallies,
    ledger, certificate, datapackage, plan or trucks as CSV, public key, key ring, allowance, sealed records, proof,
    figures of a demo. Of your data it lists columns and types, never values; of a draft, what is still blank. Keys are
    refused.

    Example: dunnage show release
    """
    from dunnage.showing import shown

    found, text = shown(path, devices=devices)
    if xlsx is not None:
        from dunnage.tables.columns import write_workbook

        sheets = write_workbook(path, xlsx)
        found, text = {**found, "xlsx": str(xlsx)}, f"{text}\nWorkbook    {xlsx}: {', '.join(sheets)}"
    print_result(found, text, as_json)


def verify(
    release: ReleaseArgument,
    signed_by: Annotated[Path | None, typer.Option(help="Public key (PEM) the release must be signed with.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Verify a release from outside: digests, then everything that can be counted. Exit 1 if anything fails.

    Example: dunnage verify release
    """
    from dunnage.verification import verify as verify_release

    with progress() as tell:
        tell("verifying")
        result = verify_release(release, signed_by=signed_by)
    print_result(result.to_dict(), result.summary(), as_json)
    if not result.ok:
        raise typer.Exit(1)


def _model(
    name: str | None, statistic: str | None, risk: str | None, prior: str | None, budget: str | None, as_published: bool
) -> Model:
    """Make the model that was asked for; an option that it does not take is an error."""
    from dunnage.planning.models import Robust, Sealed, Standard, Stochastic

    if name is None:
        name = "standard" if risk is None and prior is None else "stochastic"
    given: dict[str, str | bool | None] = {"statistic": statistic, "risk": risk, "prior": prior, "budget": budget}
    given["as_published"] = as_published or None
    takes: dict[str, tuple[Any, tuple[str, ...]]] = {
        "standard": (Standard, ("statistic",)),
        "robust": (Robust, ("risk", "budget")),
        "stochastic": (Stochastic, ("risk", "prior", "as_published")),
        "sealed": (Sealed, ()),
    }
    if name not in takes:
        raise ParameterError(f"model must be one of {', '.join(takes)}. Got {name!r}.")
    kind, options = takes[name]
    wrong = [option for option, value in given.items() if value is not None and option not in options]
    if wrong:
        listed = ", ".join(f"--{option.replace('_', '-')}" for option in wrong)
        raise ParameterError(f"the {name} model does not take {listed}. Leave it out, or choose another --model.")
    made: Model = kind(**{option: given[option] for option in options if given[option] is not None})
    return made


def pack(
    release: ReleaseArgument,
    out: PlanOut,
    capacity: Annotated[
        list[str] | None, typer.Option(help="What a truck holds: 500kg or volume=9; repeatable.")
    ] = None,
    trucks: Annotated[Path | None, typer.Option(help="Trucks file: CSV truck,count,cost and capacities.")] = None,
    by: Annotated[str | None, typer.Option(help="Public column whose values are packed apart.")] = None,
    apart: Annotated[str | None, typer.Option(help="Another public column whose values never share a truck.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="standard | robust | stochastic | sealed; by default standard, with a risk or prior stochastic. "
            "Noisy releases: standard or stochastic."
        ),
    ] = None,
    statistic: Annotated[
        str | None,
        typer.Option(help="Standard: upper (everything fits; noisy: as sure as stated) | mean (fewer trucks)."),
    ] = None,
    risk: Annotated[
        str | None, typer.Option(help="Stochastic, robust: chance that something in the whole plan may not fit.")
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Stochastic on noisy releases: uniform | normal:MEAN:SD, what weights are drawn from."),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Robust: largest | items | published.")] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="Stochastic: the paper's sampled model.")
    ] = False,
    spread: Annotated[int | None, typer.Option(help="No truck takes more than 1/SPREAD of a class.")] = None,
    margin: Annotated[
        str | None, typer.Option(help="Part of every capacity to leave free, such as 0.05; with every model.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds to search at most.")] = 60.0,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Pack released rows into as few trucks as can be found, with a proven bound. Needs only the release.

    Example: dunnage pack release --capacity 500kg --model stochastic --risk 0.05 -o plan
    """
    from dunnage.folders import check_new_folder
    from dunnage.planning.packing import pack as pack_rows
    from dunnage.planning.plan import PLAN_FILE
    from dunnage.planning.trucks import read_trucks
    from dunnage.release import Release

    chosen = _model(model, statistic, risk, prior, budget, as_published)
    check_new_folder(out, marker=PLAN_FILE, force=force)
    with progress() as tell:
        tell("reading the release")
        received = Release.read(release)
        received.check_rows("pack")
        kinds = read_trucks(trucks, received.quantities) if trucks is not None else None
        tell("packing")
        plan = pack_rows(
            received,
            capacity=capacity,
            trucks=kinds,
            model=chosen,
            by=by,
            apart=apart,
            spread=spread,
            margin=margin,
            seconds=time_limit,
            progress=tell,
        )
        plan.write(out, force=force)
    print_result({"plan": str(out), **plan.to_dict()}, f"{plan.summary()}\nPlan        {out}", as_json)


def apply(
    plan: Annotated[Path, typer.Argument(help="Plan folder, or a CSV file row,bin or zone,shuttles of others.")],
    data: Annotated[Path, typer.Argument(help="The private rows that were published.")],
    policy: PolicyOption,
    release: Annotated[Path, typer.Option("--release", help="Release folder the plan was made on.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Settlement folder to make; private.")],
    key: KeyOption = None,
    period: PeriodOption = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair bins that overflow.")] = False,
    leave_behind: Annotated[bool, typer.Option("--leave-behind", help="Leave packages behind if need be.")] = False,
    capacity: Annotated[
        list[str] | None,
        typer.Option(help="What a truck holds, for a CSV plan or instead of a plan's own; repeatable."),
    ] = None,
    trucks: Annotated[Path | None, typer.Option(help="Trucks file, for a CSV plan or instead of a plan's own.")] = None,
    city: Annotated[
        Path | None, typer.Option(help="Shuttles: city folder or GTFS feed the fleet was sized in.")
    ] = None,
    shuttle_hour: ShuttleHour = None,
    force: ForceFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Apply a plan to the true data: what really overflows, repaired if asked; or how shuttles really run.

    Example: dunnage apply plan parcels.csv --policy parcels.toml --release release --repair -o settlement
    """
    from dunnage.planning.plan import told_fleet_plan

    if told_fleet_plan(plan):
        options = {"--repair": repair, "--leave-behind": leave_behind, "--capacity": capacity, "--trucks": trucks}
        _refuse_options(options, "a plan of shuttles")
        apply_fleet(
            plan,
            data,
            policy,
            release,
            out,
            city=city,
            key=key,
            period=period,
            shuttle_hour=shuttle_hour,
            force=force,
            as_json=as_json,
        )
        return
    _refuse_options({"--city": city, "--shuttle-hour": shuttle_hour}, "a plan of packages")
    from dunnage.folders import check_new_folder
    from dunnage.planning.plan import Plan
    from dunnage.planning.trucks import read_trucks
    from dunnage.publication import Key, key_path
    from dunnage.release import Release
    from dunnage.settle import SETTLEMENT_FILE
    from dunnage.settle import apply as apply_plan
    from dunnage.tables.load import load

    check_new_folder(out, marker=SETTLEMENT_FILE, force=force)
    with progress() as tell:
        tell("reading")
        published = Release.read(release)
        published.check_rows("apply")
        rows = load(data, policy, period=period or published.certificate.period)
        kinds = None
        if trucks is not None:  # a plan that does not say what it packs packs whatever the release has
            packed = list(Plan.read(plan).quantities) if plan.is_dir() else published.quantities
            kinds = read_trucks(trucks, packed)
        tell("applying the plan")
        done = apply_plan(
            plan,
            rows,
            published,
            Key.read(key or key_path(release)),
            capacity=capacity or None,
            trucks=kinds,
            repair=repair or leave_behind,
            leave_behind=leave_behind,
            progress=tell,
        )
        done.write(out, force=force)
    print_result({"settlement": str(out), **done.to_dict()}, f"{done.summary()}\nSettlement  {out} (private)", as_json)


def _refuse_options(options: Mapping[str, object], what: str) -> None:
    """Refuse options that a kind of plan does not take; those not given are None, False or empty."""
    given = [name for name, value in options.items() if not (value is None or value is False or value == [])]
    if given:
        raise ParameterError(f"{what} does not take {', '.join(given)}. Leave it out.")


@budget_app.command("show")
def budget_show(
    ledger: Annotated[str, typer.Argument(help="Ledger file.")],
    dataset: Annotated[str | None, typer.Option(help="One dataset only.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show budgets, spends and what is left.

    Example: dunnage budget show dunnage-ledger.sqlite
    """
    from dunnage.ledger import Ledger

    with Ledger.open_existing(ledger) as book:
        if dataset is None:
            print_result(book.to_dict(), book.summary(), as_json)
            return
        if dataset not in book.datasets():
            known = ", ".join(book.datasets()) or "none"
            raise ParameterError(f"the ledger has no dataset {dataset!r}. It has: {known}.")
        statement = book.statement(dataset)
        print_result(statement.to_dict(), statement.summary(), as_json)


@budget_app.command("set")
def budget_set(
    ledger: Annotated[str, typer.Argument(help="Ledger file.")],
    dataset: Annotated[str, typer.Option(help="Dataset, as the policy names it.")],
    epsilon: Annotated[str, typer.Option(help="Most epsilon over all releases.")],
    neighbours: Annotated[str, typer.Option(help="add-remove | replace-one.")],
    note: Annotated[str, typer.Option(help="Why; kept in the ledger.")],
    delta: Annotated[str, typer.Option(help="Most delta over all releases.")] = "0",
    as_json: JsonFlag = False,
) -> None:
    """Set or change the budget of a dataset; the note is kept with it.

    Example: dunnage budget set L.sqlite --dataset rides --epsilon 2 --neighbours add-remove --note "board, 3 May"
    """
    from dunnage.exact import exact
    from dunnage.guarantees import Budget, Neighbours
    from dunnage.ledger import Ledger

    if neighbours not in tuple(Neighbours):
        raise ParameterError(f"neighbours must be {' or '.join(Neighbours)}. Got {neighbours!r}.")
    budget = Budget(
        epsilon=exact(epsilon, what="epsilon"), delta=exact(delta, what="delta"), neighbours=Neighbours(neighbours)
    )
    with Ledger(ledger) as book:
        statement = book.set_budget(dataset, budget, note=note)
        print_result(statement.to_dict(), statement.summary(), as_json)


for _command in (draft, advise, publish, show, verify, pack, size, apply, audit, prove, estimate, demo):
    app.command(short_help=_LOOP[_command.__name__])(_command)
for _name, _group in (("generate", generate_app), ("device", device_app), ("budget", budget_app)):
    app.add_typer(_group, name=_name, short_help=_LOOP[_name])


def _fail(kind: str, message: str, code: int, **details: str) -> NoReturn:
    """Print an error for a person, and for programs if they asked for JSON, and leave."""
    print_text(f"error: {message}", err=True)
    if "--json" in sys.argv:
        print_text(json.dumps({"error": {"kind": kind, "message": message, **details}}, indent=2))
    sys.exit(code)


def _fail_as(error: Exception) -> NoReturn:
    kind = type(error).__name__
    if isinstance(error, BudgetError):
        _fail(kind, str(error), error.exit_code, asked=error.asked, spent=error.spent, left=error.left)
    if isinstance(error, DunnageError):
        _fail(kind, str(error), error.exit_code)
    if hasattr(error, "format_message"):  # a command line that cannot be read; Typer's own, or Click's
        if kind == "NoArgsIsHelpError":
            print_text(error.format_message(), err=True)
            sys.exit(2)
        _fail("UsageError", f"{error.format_message()} See --help.", 2)
    if isinstance(error, OSError):
        _fail(kind, f"{error.strerror or kind}. Check the files named, and the space on the disk.", 2)
    if isinstance(error, MemoryError):
        _fail(kind, "out of memory. Use a machine with more, or publish one period at a time.", 70)
    raise error


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character; that is no reason to fail
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        if code == _INTERRUPTED:  # Typer turns the interrupt into its exit code
            raise KeyboardInterrupt
    except BrokenPipeError:  # whoever read our output has gone: nothing is left to say, not even on closing
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        _fail("Interrupted", "interrupted. What was spent stays spent; see dunnage budget show.", _INTERRUPTED)
    except Exception as error:
        _fail_as(error)
    sys.exit(code if isinstance(code, int) else 0)
