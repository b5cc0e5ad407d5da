# SPDX-License-Identifier: Apache-2.0
"""Next week: periods by day, week, month and label, dates as declared, the next file, and policies like the last."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import WEIGHT, a_policy, a_trip_policy
from tests.commands import fine, run
from tests.refusals import found, refusal

import dunnage as dn
from dunnage.errors import InputError, ParameterError, PolicyError, Refusal
from dunnage.model.domains import split_stamps
from dunnage.model.periods import LENGTHS, DateFormat, dates_of, length_of, period_of
from dunnage.samples.shape import like
from dunnage.tables.columns import iso_times

PARTITION = {"name": "partition", "k": 2}
ATTRIBUTES = {"parcel": {"role": "identifier"}, "weight": WEIGHT, "day": {"role": "drop"}}
DAYS = st.dates(date(1990, 1, 1), date(2080, 1, 1))


def of(days: Any, period: Any, *, length: str = "week", column: str | None = "day", **rule: Any) -> list[int]:
    """Give the source rows of a period."""
    stated = {"length": length, **({"column": column} if column else {}), **rule}
    table = pa.table({"parcel": [str(i) for i in range(len(days))], "weight": [1.0] * len(days), "day": days})
    return dn.load(table, a_policy(PARTITION, ATTRIBUTES, period=stated), period=period).source_rows.tolist()


@given(DAYS)
def test_a_date_is_in_its_period_and_in_no_other(day: date) -> None:
    for length in ("day", "week", "month"):
        period = period_of(day, length)
        assert length_of(period) == length
        dates = dates_of(period)
        assert dates is not None
        assert day.toordinal() in dates
        before, after = (date.fromordinal(number) for number in (dates.start - 1, dates.stop))
        assert {period_of(before, length), period_of(after, length)}.isdisjoint({period})
        assert {period_of(date.fromordinal(number), length) for number in dates} == {period}
    assert period_of(day, "week") == day.strftime("%G-W%V")


def test_rows_of_a_week_a_label_and_what_is_no_period() -> None:
    days = ["2026-12-27", "2026-12-28", "2027-01-03", "2027-01-04", "2026-W53"]
    assert of(days, "2026-W53") == [2, 3, 5]
    assert of([date.fromisoformat(day) for day in days[:4]], "2026-W53") == [2, 3]
    assert of(["autumn-a", " autumn-a", "autumn-b"], "autumn-a", length="label") == [1, 2]
    assert of(pa.array([1, 2, 2]), "2", length="label") == [2, 3]
    assert of(["anything", ""], "Herbst 2026", length="label", column=None) == [1, 2]
    for period, length in (
        ("2026-W54", "week"),
        ("2026-W5", "week"),
        ("2026-11", "week"),
        ("2026-W47", "month"),
        ("2026-13", "month"),
        ("autumn-a", "day"),
        ("2026-11", "label"),
        ("2026-W47", "label"),
        ("", "label"),
        ("a\nb", "label"),
        ("x" * 200, "label"),
        (5, "label"),
        (None, "label"),
    ):
        refusal(ParameterError, of, ["2026-11-15"], period, length=length)
    assert found(refusal(InputError, of, ["2026-11-15", "2026-11"], "2026-W46")) == [("day", 2)]
    assert found(refusal(InputError, of, ["a", " "], "a", length="label")) == [("day", 2)]
    assert set(LENGTHS) == {"day", "week", "month", "label"}


# --- dates as they are written -----------------------------------------------------------------------------------

FORMATS = {
    "day.month.year": "%d.%m.%Y",
    "month/day/year": "%m/%d/%Y",
    "year/month/day": "%Y/%m/%d",
    "%d.%m.%y": "%d.%m.%y",
    "day-month-year hour:minute": "%d-%m-%Y %H:%M",
    "%m/%d/%Y %I:%M %p": "%m/%d/%Y %I:%M %p",
    "%Y%m%d %H:%M:%S": "%Y%m%d %H:%M:%S",
}


@given(st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)), st.sampled_from(sorted(FORMATS)), st.booleans())
def test_dates_are_read_as_strptime_reads_them(moment: datetime, text: str, padded: bool) -> None:
    form = FORMATS[text]
    cell = moment.strftime(form)
    if not padded and "%Y%m%d" not in form:
        cell = cell.replace("/0", "/").removeprefix("0")
    truth = datetime.strptime(cell, form)
    (read,) = iso_times(pa.array([f" {cell} "]), DateFormat(text), ()).to_pylist()
    assert datetime.fromisoformat(read) == truth
    if "%H" not in form and "%I" not in form:
        (read,) = iso_times(pa.array([f"{cell} {moment:%H:%M:%S}"]), DateFormat(text), ()).to_pylist()
        assert datetime.fromisoformat(read) == moment.replace(microsecond=0)


def test_cells_in_another_format_are_refused_not_guessed() -> None:
    cells = ["15.11.2026", "2026-11-15", "11/15/2026", "15.11.2026x", "n/a", "", None, "08:12", "1.1.26"]
    read = iso_times(pa.array(cells), DateFormat("day.month.year"), ("n/a",)).to_pylist()
    assert read == ["2026-11-15", "?", "?", "?", "n/a", "", "", "08:12", "?"]
    (hour,) = iso_times(pa.array(["11/15/2026 13:00 PM"]), DateFormat("%m/%d/%Y %I:%M %p"), ()).to_pylist()
    assert hour == "?"
    for text in ("", "dd.mm.yyyy", "day.month", "day.day.year", "%d.%m.%Y %H", "%d.%m.%Y %I:%M", "%d.%m.%Y %Q", "%"):
        refusal(ParameterError, DateFormat, text)


def test_the_format_of_a_period() -> None:
    days = ["16.11.2026", "22.11.2026 23:59", "23.11.2026", "1.12.2026"]
    assert of(days, "2026-W47", format="day.month.year") == [1, 2]
    assert of(days, "2026-12", length="month", format="%d.%m.%Y") == [4]
    assert of([date(2026, 11, 16)], "2026-W47", format="day.month.year") == [1], "dates need no format"
    error = refusal(InputError, of, [*days, "2026-11-16", "31.11.2026"], "2026-W47", format="day.month.year")
    assert found(error) == [("day", 5, 6)]
    assert "format" in str(refusal(InputError, of, days, "2026-W47")), "the remedy"
    for rule in ({"format": "dd.mm"}, {"format": ""}, {"length": "label", "format": "day.month.year"}):
        refusal(PolicyError, of, days, "2026-W47", **rule)
    refusal(PolicyError, of, days, "2026-W47", column=None, format="day.month.year")


def test_times_of_trips_in_another_format_and_their_week() -> None:
    mechanism = {"name": "noisy-counts", "epsilon": 1, "threshold": 1}
    week = {"period": {"length": "week", "column": "at"}}
    policy = a_trip_policy(mechanism, {"format": "day.month.year", "day": "weekday"}, **week)
    start, end = policy.schema["from"].domain.labels[:2]
    cells = ["16.11.2026 8:12", "22.11.2026 09:30:05", "23.11.2026 08:12"]
    table = pa.table({"card": list("abc"), "from": [start] * 3, "to": [end] * 3, "at": cells})
    data = dn.load(table, policy, period="2026-W47")
    assert data.source_rows.tolist() == [1, 2]
    ordinals, seconds = split_stamps(data.column("at").to_numpy())
    assert ordinals.tolist() == [date(2026, 11, 16).toordinal(), date(2026, 11, 22).toordinal()]
    assert seconds.tolist() == [8 * 3600 + 12 * 60, 9 * 3600 + 30 * 60 + 5]
    release, _ = dn.publish(data, ledger=":memory:")
    assert release.certificate.period == "2026-W47"
    assert policy.schema.time.num_dates("2026-W47") == (1,) * 7
    assert "format" not in str(release.certificate.plain()["attributes"])
    assert len(like(policy, 40, period="2026-W47")) > 0, "generated trips are read too"
    table = table.set_column(3, "at", pa.array(["2026-11-16T08:12", *cells[1:]]))
    assert found(refusal(InputError, dn.load, table, policy, period="2026-W47"))[0] == ("at", 1)
    # The format belongs to the column; times have no labels; a label does not say which dates it has.
    for stated, where in (
        ({**week["period"], "format": "day.month.year"}, "period.format"),
        ({"length": "label", "column": "at"}, "period.length"),
    ):
        error = refusal(PolicyError, a_trip_policy, mechanism, {}, period=stated)
        assert [problem.where for problem in error.problems] == [where]
    label = {"period": {"length": "label"}}
    error = refusal(PolicyError, a_trip_policy, mechanism, {"day": "date"}, **label)
    assert [problem.where for problem in error.problems] == ["attributes.at.day"]
    plain = a_trip_policy(mechanism, **label)
    clocks = pa.table({"card": ["a"], "from": [start], "to": [end], "at": ["08:12"]})
    assert dn.publish(dn.load(clocks, plain, period="pilot"), ledger=":memory:").release.certificate.period == "pilot"


# --- the next file -----------------------------------------------------------------------------------------------

PARCELS = """dataset = "parcels"
protects = "package"
[attributes.parcel]
role = "identifier"
[attributes.weight]
role = "quasi-identifier"
kind = "numeric"
domain = [0, 100]
[attributes.day]
role = "drop"
[mechanism]
name = "partition"
k = 2
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for week, first in ((47, date(2026, 11, 16)), (48, date(2026, 11, 23))):
        lines = [f"p{week}-{i},{i + 1},{first + timedelta(days=i % 5)}" for i in range(8)]
        Path(f"w{week}.csv").write_text("\n".join(["parcel,weight,day", *lines]) + "\n")
    Path("last.toml").write_text(PARCELS)
    return tmp_path


def test_the_next_file_gets_the_right_remedy(place: Path) -> None:
    fine("publish w47.csv --policy last.toml -o r47")
    other = run("publish w48.csv --policy last.toml -o r48")
    other.refused("[period]")
    assert "--period" in other.err
    same = run("publish w47.csv --policy last.toml -o again")
    same.refused("--again")
    assert "[period]" not in same.err
    # A dry run is allowed, says so, and changes nothing.
    ledger = Path("dunnage-ledger.sqlite").read_bytes()
    dry = fine("publish w48.csv --policy last.toml -o r48 --dry-run")
    assert [other.err] == [f"error: {text}\n" for text in dry["refusals"]]
    assert Path("dunnage-ledger.sqlite").read_bytes() == ledger
    # The remedy works: one policy with periods for this file and the next.
    week = '[period]\nlength = "week"\ncolumn = "day"\n'
    Path("weeks.toml").write_text(f"{PARCELS}{week}")
    both = [*Path("w47.csv").read_text().splitlines(), *Path("w48.csv").read_text().splitlines()[1:]]
    Path("both.csv").write_text("\n".join(both) + "\n")
    fine("publish w48.csv --policy weeks.toml --period 2026-W48 -o r48")
    fine("publish both.csv --policy weeks.toml --period 2026-W47 -o w47-again")
    run("publish w48.csv --policy weeks.toml --period 2026-W48 -o r48b").refused("--again")
    lines = Path("w48.csv").read_text().splitlines()
    Path("w48.csv").write_text("\n".join([*lines, "late,9,2026-11-27"]) + "\n")
    late = run("publish w48.csv --policy weeks.toml --period 2026-W48 -o r48b")
    late.refused("--period")
    assert "--again" in late.err
    fine("publish w48.csv --policy weeks.toml --period 2026-W48 -o r48b --again")
    assert len(dn.Ledger("dunnage-ledger.sqlite").statement("parcels").spends) == 4


def test_ledgers_without_digests_name_both_remedies(place: Path) -> None:
    ledger = dn.Ledger("old.sqlite")
    data = dn.load("w47.csv", "last.toml")
    promise = dn.promise(data.policy)
    ledger.spend(promise, data.policy.purpose())  # as version 0.1.0 did
    text = str(refusal(Refusal, dn.publish, dn.load("w48.csv", "last.toml"), ledger=ledger))
    assert all(word in text for word in ("--again", "[period]"))
    dn.publish(data, ledger=ledger, again=True, warn=[].append)  # a second spend brings the digests
    assert all(len(digest) == 64 for digest in ledger.history(data.policy.dataset)[-1].content["rows"].values())
    text = str(refusal(Refusal, dn.publish, data, ledger=ledger))
    assert "[period]" not in text, "the same rows"


# --- a policy like the last --------------------------------------------------------------------------------------


def test_a_policy_like_the_last_can_be_published_at_once(place: Path) -> None:
    fine("publish w47.csv --policy last.toml -o r47")
    result = fine("draft w48.csv --like last.toml -o next.toml")
    assert any("period" in remark for remark in result["remarks"])
    drafted, last = dn.Policy.read("next.toml"), dn.Policy.read("last.toml")
    assert drafted.period is not None
    assert drafted.period.length == "label"
    assert (drafted.dataset, drafted.schema, drafted.mechanism) == (last.dataset, last.schema, last.mechanism)
    fine("publish w48.csv --policy next.toml --period autumn-a -o r48")
    run("draft w48.csv --like last.toml -o next.toml").refused("next.toml")
    run("draft w48.csv --like last.toml --story rows -o other.toml").refused("--story")
    # A policy with periods is repeated as it is, once, whoever repeats it.
    Path("third.toml").write_text(dn.draft("w48.csv", like="next.toml"))
    assert dn.Policy.read("third.toml").digest() == drafted.digest()
    fourth = dn.draft("w48.csv", like="third.toml")
    assert fourth.count("# Made from") == 1
    assert Path("third.toml").read_text().count("# Made from") == 1
    refusal(ParameterError, dn.draft, "w48.csv", like="next.toml", story="rows")


def test_what_differs_from_the_last_file_is_said(place: Path) -> None:
    Path("less.csv").write_text("parcel,wieght,day\na,1,2026-11-16\n")
    assert found(refusal(InputError, dn.draft, "less.csv", like="last.toml")) == [("weight",)]
    assert "wieght" in run("draft less.csv --like last.toml -o x.toml").err
    assert not Path("x.toml").exists()
    Path("more.csv").write_text("parcel;weight;day;hub\na;1,5;16.11.2026;B\na;2,5;16.11.2026;B\nb;x;17.11.2026;C\n")
    Path("last.toml").write_text(f'{PARCELS}[read]\nnull = ["-"]\n\n[period]\nlength = "week"\n')
    remarks = fine("draft more.csv --like last.toml -o next.toml")["remarks"]
    assert all(any(word in remark for remark in remarks) for word in ("'hub'", "'weight'", "[read]"))
    error = refusal(PolicyError, dn.Policy.read, "next.toml")
    assert [problem.where for problem in error.problems] == ["attributes.hub.role"]
    filled = Path("next.toml").read_text().replace('role = "" ', 'role = "drop" ')
    policy = dn.Policy.from_text(filled)
    assert (policy.read_options.delimiter, policy.read_options.decimal, policy.read_options.null) == (";", ",", ("-",))
    assert policy.period is not None
    assert policy.period.length == "week"
    Path("ragged.csv").write_text("parcel;weight;day\na;1\n")
    refusal(InputError, dn.draft, "ragged.csv", like="last.toml")
    refusal(PolicyError, dn.draft, "w48.csv", like="none.toml")


def test_files_of_the_policy_are_found_from_another_folder(place: Path) -> None:
    Path("tree.csv").write_text("p1,A\np2,A\n")
    text = PARCELS.replace(
        '[attributes.day]\nrole = "drop"', '[attributes.day]\nrole = "quasi-identifier"\nkind = "tree"'
    )
    text = text.replace('kind = "tree"', 'kind = "tree"\nhierarchy = "tree.csv"')
    Path("last.toml").write_text(text)
    Path("sub").mkdir()
    fine("draft w48.csv --like last.toml -o sub/next.toml")
    assert dn.Policy.read("sub/next.toml").schema["day"].domain == dn.Policy.read("last.toml").schema["day"].domain


def test_drafts_of_trips_ask_how_dates_are_written(place: Path) -> None:
    Path("trips.csv").write_text("card,from_stop,to_stop,departure\na,S1,S2,15.11.2026 08:12\n")
    error = refusal(PolicyError, dn.Policy.from_text, dn.draft("trips.csv"))
    assert "attributes.departure.format" in [problem.where for problem in error.problems]
    Path("trips.csv").write_text("card,from_stop,to_stop,departure\na,S1,S2,2026-11-15 08:12\n")
    assert 'format = ""' not in dn.draft("trips.csv")


def test_the_next_week_of_trips_is_published_under_a_policy_like_the_last(place: Path) -> None:
    for week, monday in (("w23", date(2014, 6, 2)), ("w24", date(2014, 6, 9))):
        times = [f"{monday + timedelta(days=number % 7)} {6 + number % 12:02d}:30" for number in range(420)]
        rows = [f"{'AB'[number % 2]},{'BA'[number % 2]},{time}\n" for number, time in enumerate(times)]
        Path(f"{week}.csv").write_text("".join(["from,to,at\n", *rows]))
    Path("stops.csv").write_text("stop\nA\nB\n")
    last = (
        'dataset = "taps"\nprotects = "trip"\n\n[trip]\norigin = "from"\ndestination = "to"\ntime = "at"\n\n'
        + "".join(f'[attributes.{end}]\nrole = "quasi-identifier"\nkind = "stop"\n\n' for end in ("from", "to"))
        + '[attributes.at]\nrole = "quasi-identifier"\nkind = "time"\ndomain = ["06:00", "18:00"]\n'
        'window_minutes = 360\n\n[city]\nstops = "stops.csv"\n\n[expect]\ndates = 7\ntrips = 400\n\n'
        '[mechanism]\nname = "noisy-counts"\nepsilon = 1\n'
    )
    Path("taps.toml").write_text(last)
    fine("publish w23.csv --policy taps.toml -o r23")
    remarks = fine("draft w24.csv --like taps.toml -o weekly.toml")["remarks"]
    assert any("--period 2026-W47" in remark for remark in remarks)
    assert fine("publish w24.csv --policy weekly.toml --period 2014-W24 --dry-run")["refusals"] == []
    fine("publish w24.csv --policy weekly.toml --period 2014-W24 -o r24")
    assert len(dn.load("w23.csv", "weekly.toml", period="2014-W24")) == 0, "trips of another week are not counted"
    # What one release covers is stated by the policy; without dates in the cells, a file is one period.
    for num, length in ((1, "day"), (5, "week"), (21, "month"), (12, "label")):
        Path("taps.toml").write_text(last.replace("dates = 7", f"dates = {num}"))
        rule = dn.Policy.from_text(dn.draft("w24.csv", like="taps.toml"), path=Path("x").absolute()).period
        assert rule is not None
        assert (rule.length, rule.column) == (length, "at" if length != "label" else None)
    Path("clock.csv").write_text("from,to,at\nA,B,08:12\nB,A,9:30\n")
    Path("taps.toml").write_text(last)
    rule = dn.Policy.from_text(dn.draft("clock.csv", like="taps.toml"), path=Path("x").absolute()).period
    assert rule is not None
    assert (rule.length, rule.column) == ("week", None)
