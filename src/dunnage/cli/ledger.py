# SPDX-License-Identifier: Apache-2.0
"""dunnage budget and ledger, propose, approve, refuse, sign: what was spent, and who agreed to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import dunnage as dn
from dunnage.cli import shared
from dunnage.cli.shared import OptPath, OptText, print_result, print_text, progress
from dunnage.errors import ParameterError
from dunnage.text import several

if TYPE_CHECKING:
    from dunnage.ledger import Ledger
    from dunnage.ledger.entries import Content

budget_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show or set the privacy budget in a ledger.",
    epilog="Example: dunnage budget show dunnage-ledger.sqlite",
)
ledger_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, check, move or share a ledger; set who must approve.",
    epilog="Example: dunnage ledger show dunnage-ledger.sqlite",
)
LedgerArgument = Annotated[str, Argument(help="Ledger: a file or postgresql://user@host/database.")]
DatasetOption = Annotated[str, Option("--dataset", help="Name of the dataset, as in the policy.")]
NoteOption = Annotated[str, Option("--note", help="Why; the ledger keeps the note.")]
KeyOption = Annotated[
    OptPath, Option("--sign", help="Your Ed25519 private key (PEM), if the dataset has a rule that names you.")
]
SignWith = Annotated[Path, Option("--sign", help="Your Ed25519 private key (PEM).")]
ProposalArgument = Annotated[str, Argument(help="The proposal, as dunnage propose and ledger show print it.")]
SeenPolicy = Annotated[OptPath, Option("--policy", help="The policy that you looked at; it must be the proposed one.")]
SeenPreview = Annotated[OptPath, Option("--preview", help="The preview that you looked at; must be the proposed one.")]
SeenAudit = Annotated[OptPath, Option("--audit", help="The audit that you looked at; it must be the proposed one.")]


def _check_known(book: Ledger, dataset: str) -> None:
    if dataset not in book.datasets():
        names = ", ".join(book.datasets()) or "none"
        raise ParameterError(f"the ledger has no dataset {dataset!r}. It has: {names}.")


@budget_app.command("show")
def budget_show(
    ledger: LedgerArgument,
    dataset: Annotated[OptText, Option(help="Show this dataset only.")] = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Show budgets, what was spent and what is left.

    Example: dunnage budget show dunnage-ledger.sqlite
    """
    from dunnage.ledger import location
    from dunnage.publication import stopped_runs

    with dn.Ledger.open_existing(ledger) as book:
        for line in stopped_runs(file.parent) if (file := location(ledger)) is not None else ():
            print_text(f"WARNING: {line}", err=True)
        if dataset is None:
            print_result(book.to_dict(), book.summary(), as_json)
            return
        _check_known(book, dataset)
        statement = book.statement(dataset)
        print_result(statement.to_dict(), statement.summary(), as_json)


@budget_app.command("set")
def budget_set(
    ledger: LedgerArgument,
    dataset: Annotated[str, Option(help="Name of the dataset, as in the policy.")],
    epsilon: Annotated[str, Option(help="Maximum epsilon over all releases together.")],
    neighbours: Annotated[str, Option(help="Which neighbours the budget is for: add-remove | replace-one.")],
    note: Annotated[str, Option(help="Why you set it; the ledger keeps the note.")],
    delta: Annotated[str, Option(help="Maximum delta over all releases together.")] = "0",
    accounting: Annotated[str, Option(help="sum | concentrated (for many small releases; needs a delta).")] = "sum",
    key: KeyOption = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Set or change the budget of a dataset. The ledger keeps your note with it.

    Example: dunnage budget set L.sqlite --dataset rides --epsilon 2 --neighbours add-remove --note "board, 3 May"
    """
    from dunnage.exact import exact

    terms: Content = {"neighbours": neighbours, "accounting": accounting}  # a budget checks its terms itself
    budget = dn.Budget(epsilon=exact(epsilon, what="epsilon"), delta=exact(delta, what="delta"), **terms)
    with dn.Ledger(ledger) as book:
        statement = book.set_budget(dataset, budget, note=note, sign=key)
        print_result(statement.to_dict(), statement.summary(), as_json)


@ledger_app.command("show")
def ledger_show(
    ledger: LedgerArgument,
    dataset: Annotated[OptText, Option(help="Show this dataset only.")] = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Show every entry in words: what was spent, what became of it, and what is left for each period and year.

    Example: dunnage ledger show dunnage-ledger.sqlite
    """
    from dunnage.ledger.telling import told

    with dn.Ledger.open_existing(ledger) as book:
        if dataset is not None:
            _check_known(book, dataset)
        parts = [told(book, name) for name in ([dataset] if dataset is not None else book.datasets())]
        name = book.name  # without a password
    text = "\n\n".join(part.text() for part in parts) or "nothing was spent"
    print_result({"ledger": name, "datasets": [part.to_dict() for part in parts]}, text, as_json)


@ledger_app.command("check")
def ledger_check(
    ledger: LedgerArgument,
    releases: Annotated[list[Path] | None, Argument(help="Releases that the ledger must have paid for.")] = None,
    anchor: Annotated[list[Path] | None, Option(help="File that publish --anchor wrote; repeat it.")] = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Check that a ledger is whole: hashes, sums, signatures, and that it has every entry that others have seen.

    The exit code is 1 if something is missing or was altered.

    Example: dunnage ledger check dunnage-ledger.sqlite release
    """
    from dunnage.ledger.telling import check_ledger

    with dn.Ledger.open_existing(ledger) as book:
        result = check_ledger(book, releases or (), anchor or ())
    print_result(result.to_dict(), result.summary(), as_json)
    if not result.ok:
        raise typer.Exit(1)


@ledger_app.command("upgrade")
def ledger_upgrade(ledger: LedgerArgument, as_json: shared.JsonFlag = False) -> None:
    """Bring a ledger of an earlier version to today's format, with its history. Earlier versions cannot read it then.

    Example: dunnage ledger upgrade dunnage-ledger.sqlite
    """
    dn.Ledger.open_existing(ledger).close()  # nothing is created
    with dn.Ledger(ledger) as book:
        before, spends = book.upgrade(), sum(len(book.statement(name).spends) for name in book.datasets())
    text = f"{ledger} had format {before} and has format 2 now, with {spends} spends."
    print_result({"ledger": ledger, "before": before, "format": 2, "spends": spends}, text, as_json)


@ledger_app.command("move")
def ledger_move(
    ledger: LedgerArgument,
    to: Annotated[str, Argument(help="Where there is no ledger yet: a file or postgresql://...")],
    as_json: shared.JsonFlag = False,
) -> None:
    """Move a ledger with its history, for example from a file to PostgreSQL. Nobody can spend from the old one then.

    Example: dunnage ledger move dunnage-ledger.sqlite postgresql://owner@db.example/ledger
    """
    dn.Ledger.open_existing(ledger).close()
    with dn.Ledger(ledger) as book, book.move(to) as moved:
        names = moved.datasets()
        text = f"Moved {book.name} to {moved.name}: {', '.join(names) or 'no dataset'}."
        print_result({"from": book.name, "to": moved.name, "datasets": names}, text, as_json)


@ledger_app.command("accept")
def ledger_accept(
    ledger: LedgerArgument,
    dataset: DatasetOption,
    note: NoteOption,
    key: KeyOption = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Continue with a ledger that lacks entries which this machine has seen, because no newer one is left.

    Example: dunnage ledger accept dunnage-ledger.sqlite --dataset rides --note "disk failed on 3 May"
    """
    with dn.Ledger(ledger) as book:
        book.accept(dataset, note=note, sign=key)
        name = book.name
    print_result({"ledger": name, "dataset": dataset}, f"Accepted {name} as it is for {dataset}.", as_json)


@ledger_app.command("rule")
def ledger_rule(
    ledger: LedgerArgument,
    dataset: DatasetOption,
    note: NoteOption,
    person: Annotated[
        list[str] | None, Option(help="NAME=KEY.pub.pem of someone who may propose and approve; repeat it.")
    ] = None,
    approvals: Annotated[int, Option(min=0, help="Approvals that a release needs, besides the proposer.")] = 1,
    signed_house: Annotated[
        bool, Option("--signed-house", help="Releases also need a house.toml that one of these people has signed.")
    ] = False,
    none: Annotated[bool, Option("--none", help="Remove the rule.")] = False,
    key: KeyOption = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Set whose approval the releases of a dataset need. A rule that exists changes only with a signature under it.

    Example: dunnage ledger rule L.sqlite --dataset rides --person ann=ann.pub.pem --person bo=bo.pub.pem --note "board"
    """
    from dunnage.ledger import Rule
    from dunnage.model.certificate import load_public_key

    people = {}
    for item in person or ():
        name, sep, path = item.partition("=")
        if not (sep and name and path):
            raise ParameterError(f"--person must be NAME=KEY.pub.pem. Got {item!r}.")
        people[name] = load_public_key(path).hex()
    rule = None if none else Rule(people=people, approvals=approvals, signed_house=signed_house)
    with dn.Ledger(ledger) as book:
        book.set_rule(dataset, rule, note=note, sign=key)
    content = None if rule is None else rule.to_dict()
    says = (
        "no rule"
        if rule is None
        else f"{several(rule.approvals, 'approval')} before each release, by {', '.join(people)}"
    )
    print_result({"dataset": dataset, "rule": content}, f"Dataset {dataset}: {says}.", as_json)


@ledger_app.command("grant")
def ledger_grant(
    ledger: LedgerArgument,
    person: Annotated[str, Option(help="User of the database.")],
    role: Annotated[str, Option(help="reader | spender | officer | none (takes it back).")],
    dataset: Annotated[str, Option(help="Dataset; * for all.")] = "*",
    as_json: shared.JsonFlag = False,
) -> None:
    """Let somebody read, spend or decide in a PostgreSQL ledger. Only the owner of the ledger can.

    Example: dunnage ledger grant postgresql://owner@db.example/ledger --person ann --role spender --dataset rides
    """
    with dn.Ledger(ledger) as book:
        book.grant(dataset, person, role)
    print_result({"person": person, "role": role, "dataset": dataset}, f"{person}: {role} of {dataset}.", as_json)


def propose(
    data: Annotated[Path, Argument(help="CSV, Parquet or Excel file with the private rows.")],
    policy: shared.PolicyOption,
    key: SignWith,
    period: Annotated[OptText, Option(help="Period to publish, as for publish.")] = None,
    ledger: shared.LedgerOption = None,
    preview: Annotated[OptPath, Option(help="Preview file to write, for those who decide; private.")] = None,
    audit: Annotated[OptPath, Option(help="Audit folder that they should look at.")] = None,
    note: Annotated[str, Option(help="What else they should know.")] = "",
    house: shared.HouseOption = None,
    exception: shared.ExceptionOption = None,
    as_json: shared.JsonFlag = False,
) -> None:
    """Propose a release, signed, for somebody else to approve. Nothing is spent.

    Example: dunnage propose trips.csv --policy trips.toml --sign ann.pem --preview preview.json
    """
    from dunnage.publishing import propose as make

    shared.check_ledger(ledger)
    limits = shared.house_of(house, policy.parent, exception)
    with progress() as tell:
        tell("reading and checking the data")
        dataset = dn.load(data, policy, period=period)
        done = make(
            dataset,
            sign=key,
            ledger=ledger,
            house=limits,
            exception=exception,
            preview=preview,
            audit=audit,
            note=note,
        )
    lines = [
        f"Proposal  {done.id} for dataset {done.dataset}",
        f"Asks for  {done.run.asked}; left then: {done.run.after.left_text()}",
        *(f"Preview   {preview} (private)" for _ in [preview] if preview is not None),
        *("Again     the same was published before: publish it with --again" for _ in [0] if done.repeats),
        f"Next      somebody else runs: dunnage approve LEDGER {done.id} --sign KEY --policy {policy}"
        + (f" --preview {preview}" if preview is not None else ""),
    ]
    print_result(done.to_dict(), "\n".join(lines), as_json)


def _decide(ledger: str, proposal: str, as_json: bool, **decision: Any) -> None:
    with dn.Ledger(ledger) as book:
        entry = book.decide(proposal, **decision)
    result = {"proposal": proposal, "decision": entry.kind, "entry": entry.number, "dataset": entry.dataset}
    print_result(result, f"{entry.kind.capitalize()} of {proposal} kept as entry {entry.number}.", as_json)


def approve(
    ledger: LedgerArgument,
    proposal: ProposalArgument,
    key: SignWith,
    policy: SeenPolicy = None,
    preview: SeenPreview = None,
    audit: SeenAudit = None,
    note: Annotated[str, Option(help="Kept with the approval.")] = "",
    as_json: shared.JsonFlag = False,
) -> None:
    """Approve a proposal of somebody else, with your signature.

    Example: dunnage approve dunnage-ledger.sqlite 5f... --sign bo.pem --policy trips.toml --preview preview.json
    """
    import hashlib

    from dunnage.publishing import audit_digest

    seen: dict[str, object] = {}
    if policy is not None:
        seen["policy_text"] = dn.Policy.read(policy).digest()
    if preview is not None:
        try:
            seen["preview"] = hashlib.sha256(preview.read_bytes()).hexdigest()
        except OSError as error:
            raise ParameterError(f"{preview} cannot be read: {error.strerror}. Give the file of propose.") from None
    if audit is not None:
        seen["audit"] = audit_digest(audit)
    _decide(ledger, proposal, as_json, approve=True, key=key, note=note, facts=seen)


def refuse(
    ledger: LedgerArgument,
    proposal: ProposalArgument,
    key: SignWith,
    note: NoteOption,
    as_json: shared.JsonFlag = False,
) -> None:
    """Refuse a proposal of somebody else, with your signature and the reason.

    Example: dunnage refuse dunnage-ledger.sqlite 5f... --sign bo.pem --note "too few trips for this epsilon"
    """
    _decide(ledger, proposal, as_json, approve=False, key=key, note=note)


def sign(
    house: Annotated[Path, Argument(help="The file with the limits of your organisation, house.toml.")],
    key: SignWith,
    as_json: shared.JsonFlag = False,
) -> None:
    """Sign house.toml, so that nobody can change the limits unnoticed. Sign it again after a change.

    Example: dunnage sign house.toml --sign officer.pem
    """
    from dunnage.model.house import House

    path = House.sign(house, key)
    print_result({"house": str(house), "signature": str(path)}, f"Signed {house}: {path}", as_json)
