# SPDX-License-Identifier: Apache-2.0
"""Pages of a collector: its tasks, and for each task how collection goes and what was estimated. They only read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dunnage.collecting.collector import CLOSED, ERASED, ESTIMATED
from dunnage.collecting.periods import alarms_of, looks_of, statement_of
from dunnage.collecting.store import Period
from dunnage.devices.client import check_task
from dunnage.devices.report import day_text
from dunnage.devices.task import LAST_DAY, Task, day_number
from dunnage.release import CERTIFICATE_FILE, Release
from dunnage.showing import figures as draw
from dunnage.text import number_text, percent

if TYPE_CHECKING:
    from dunnage.serving.service import Handlers, Service

MORE_DAYS = 30
_MAX_DAYS = 60  # that the page lists
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def handlers(service: Service) -> Handlers:
    async def index(request: Request) -> Response:
        return _page(await run_in_threadpool(_tasks, service))

    async def task(request: Request) -> Response:
        digest = service._task(request)
        return _page(await run_in_threadpool(_task, service, digest))

    return {"GET /": index, "GET /tasks/{task}": task}


def _page(content: Mapping[str, object]) -> Response:
    text = draw.render("collector.html", {"pictures": [], "links": [], **content})
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    # The page states its own policy; as a header it also keeps others from framing it.
    return HTMLResponse(
        text, headers={**_HEADERS, "content-security-policy": f"{policy[1] if policy else ''}; frame-ancestors 'none'"}
    )


def _tasks(service: Service) -> dict[str, object]:
    collector, rows, links = service.collector, [], []
    for digest, task in collector.tasks.items():
        states = collector.states(digest)
        rows.append([task.dataset, digest[:16], collector.senders[digest], f"{len(states)}"])
        links.append((f"/tasks/{digest}", f"{task.dataset}, task {digest[:16]}"))
    ready = "Reports are being stored." if collector.is_ready else "Reports cannot be stored now."
    return {
        "title": "Collector",
        "lead": f"{ready} A task is what vehicles and this collector have agreed on.",
        "cautions": [collector.failed] if collector.failed else [],
        "figures": [
            draw.Figure("Tasks", f"{len(rows)}", "known"),
            draw.Figure("Senders", f"{len(service.senders):,}", "enrolled"),
            draw.Figure("Reports", f"{collector.counts['accepted']:,}", "stored since the service started"),
        ],
        "tables": [("Tasks", ["Dataset", "Task", "Senders", "Days with reports"], rows)] if rows else [],
        "links": links,
        "links_title": "How collection goes",
    }


def _task(service: Service, digest: str) -> dict[str, object]:
    collector, task = service.collector, service.collector.tasks[digest]
    states = dict(list(collector.states(digest).items())[-_MAX_DAYS:])
    (vehicles,) = service.store.book.rows("SELECT coalesce(sum(vehicles), 0) FROM devices WHERE task = ?", digest)[0]
    rows, cautions = [], list[str]()
    moments, now = task.schedule.moments, collector.now()
    for day, state in sorted(states.items(), reverse=True):
        period = Period(digest, day)
        done = state in (CLOSED, ESTIMATED, ERASED)
        shown = service._state(digest, day, state)["state"]
        reports: Any = {} if done else collector.progress(period)["reports"]
        # Of an open day, only what is due by now can be missing.
        due = sum(task.schedule.moment(day, slot) <= now for slot in moments) / len(moments)
        expected = due * int(vehicles) * task.schedule.slots_per_day  # of each purpose
        if done:
            statement = statement_of(service.store, period)
            reports = statement.reports
            cautions += [f"{statement.day}, {caution}" for caution in statement.cautions]
        for purpose, tiers in sorted(reports.items()):
            num = sum(tiers.values())
            by_tier = ", ".join(f"{name} {count:,}" for name, count in tiers.items())
            missing = percent(max(0.0, 1 - num / expected)) if expected else "nobody enrolled"
            rows.append([day_text(day), shown, purpose, f"{num:,}", by_tier, missing])
    columns = ["Day", "State", "Purpose", "Reports", "By tier", "Missing"]
    tables: list[tuple[str, list[str], list[list[Any]]]] = [("Reports by day", columns, rows)] if rows else []
    content: dict[str, object] = {
        "title": f"Collection of {task.dataset}",
        "lead": "Reports that devices perturbed before sending. Missing: reports that enrolled vehicles owe but have "
        "not sent. Estimates come from closed days only.",
        "cautions": cautions if rows else ["No report has come yet."],
        "figures": [
            draw.Figure("Vehicles", f"{int(vehicles):,}", "enrolled"),
            draw.Figure("Senders", collector.senders[digest], "who sends"),
            draw.Figure("Days", f"{len(states)}", "with reports"),
            *_silence(task, min(collector.states(digest), default=None)),
        ],
        "tables": tables,
    }
    rules = alarms_of(collector, digest)
    if rules is not None and (looks := looks_of(collector, digest)):
        risk = f"at most {percent(1 - rules.sure)} risk of a false one in {rules.looks} days"
        tables.append((f"Alarms ({risk})", ["Rule", "Day", "State", "Estimate", "Alarm from"], _alarms(looks)))
    newest = _newest(service, digest)
    if newest is not None:
        from dunnage.serving.service import ROBUST_FILE
        from dunnage.showing.estimates import estimate_pictures, has_maps

        days, release = newest
        content |= {
            "pictures": estimate_pictures(release),
            "estimated": f"Estimates of {days.replace('_', ' to ')}",
        }
        if means := _means(release, days):
            title = f"With {MORE_DAYS} more days like these"
            tables.append((title, ["Mean", "Now", "Interval now", "Half width then"], means))
        robust_file = service.data / "releases" / digest / f"{days}.{ROBUST_FILE}"
        robust = json.loads(robust_file.read_bytes()) if robust_file.is_file() else {}
        content["cautions"] = [*cautions, *release.owner.cautions(release), *_add_robust(robust, tables)]
        files = [CERTIFICATE_FILE, "data.csv", "README.md", *(["cells.geojson"] if has_maps(release) else [])]
        files += [ROBUST_FILE] if robust else []
        content["links"] = [(f"/v1/tasks/{digest}/estimates/{days}/{name}", name) for name in files]
        content["links_title"] = "Download the release"
    return content


def _alarms(looks: Any) -> list[list[Any]]:
    rows = []
    for look in looks[:_MAX_DAYS]:
        takes = "too few reports" if look["from_value"] is None else number_text(look["from_value"])
        state = "ALARM" if look["alarm"] else "quiet"
        rows.append([look["rule"], look["day"], state, number_text(look["value"]), takes])
    return rows


def _add_robust(robust: Any, tables: list[tuple[str, list[str], list[list[Any]]]]) -> list[str]:
    """Add what the numbers of set bits say, and cells that change if unlikely ones weigh less; return cautions."""
    checks, cells, cautions = [], [], list[str]()
    for purpose, made in robust.items():
        for one in made["checks"]:
            p_value = f"{one['p_value']:.2g}" if one["p_value"] > 1e-99 else "below 1e-99"
            verdict = "not those of honest devices" if one["alarm"] else "as honest devices send"
            checks.append([purpose, one["tier"], f"{one['num_reports']:,}", verdict, p_value])
        if any(one["alarm"] for one in made["checks"]):
            cautions.append(f"{purpose}: some reports are forged. Compare the map with its robust form below.")
        for cell in made["differing"]:
            shares = [[made[kind][end][cell] for end in ("value", "lower", "upper")] for kind in ("plain", "robust")]
            texts = [f"{percent(value)} ({percent(lower)} to {percent(upper)})" for value, lower, upper in shares]
            cells.append([f"{purpose}, cell {cell}", *texts])
    if checks:
        columns = ["Purpose", "Tier", "Reports", "Set bits", "p-value"]
        tables.append(("Do the reports look forged?", columns, checks))
    if cells:
        title, columns = "Cells that change if unlikely reports weigh less", ["Cell", "All reports", "Robust"]
        tables.append((title, columns, cells[:_MAX_DAYS]))
    return cautions


def _silence(task: Task, first: int | None) -> list[draw.Figure]:
    """Say when vehicles that reported from the first day on have used up their allowance."""
    days = [day for day in map(check_task(task).of_day, task.tier_names) if day is not None]
    if first is None or not days:
        return []
    silent = first + int(task.limits.lifetime // max(days))
    note = "when vehicles that report every day may give away no more"
    return [draw.Figure("Silence", day_text(silent) if silent <= LAST_DAY else "after 2200", note)]


def _newest(service: Service, digest: str) -> tuple[str, Release] | None:
    folder = service.data / "releases" / digest
    made = [path for path in folder.iterdir() if (path / CERTIFICATE_FILE).is_file()] if folder.is_dir() else []
    if not made:
        return None
    newest = max(made, key=lambda path: (path / CERTIFICATE_FILE).stat().st_mtime_ns)
    return newest.name, Release.read(newest)


def _means(release: Release, days: str) -> list[list[Any]]:
    """Say how narrow intervals get: their width falls with the square root of the number of reports."""
    first, last = days.partition("_")[0], days.rpartition("_")[2]
    num = day_number(last) - day_number(first) + 1
    shrinks = math.sqrt(num / (num + MORE_DAYS))
    rows = []
    for row in release.data.to_pylist():
        if row["quantity"] == "mean" and row["value"] is not None:
            unit, half = f" {row['unit']}" if row["unit"] else "", (row["upper"] - row["lower"]) / 2
            interval = f"{number_text(row['lower'])} to {number_text(row['upper'])}{unit}"
            then = f"about ±{number_text(half * shrinks)}{unit}"
            rows.append([row["attribute"], f"{number_text(row['value'])}{unit}", interval, then])
    return rows
