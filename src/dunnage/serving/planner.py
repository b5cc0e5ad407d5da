# SPDX-License-Identifier: Apache-2.0
"""The planner's pages: open a release, check it, pack or size it, and send the plan back.

A planner reads and writes below ``public/`` alone. What was uploaded is not trusted: only files that a release can
have are unpacked, none of its pages is shown as a page, and everything that reads it is a job.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from starlette.responses import HTMLResponse, Response

from dunnage.errors import CheckFailed, InputError, ParameterError, ReleaseError
from dunnage.model.certificate import Certificate
from dunnage.planning.plan import PLAN_PAGE, Plan, states_fleet_plan
from dunnage.release import CERTIFICATE_FILE, RELEASE_FILES, Release
from dunnage.release.kinds import COUNTS, PUBLIC, ROWS, kind_of
from dunnage.release.page import certificate_page
from dunnage.serving.jobs import Job
from dunnage.serving.owner import zipped
from dunnage.serving.projects import SAFE, Project, check_archive
from dunnage.serving.studio import POLICY, Routes, Upload, Visit
from dunnage.serving.web import AUDITOR, HEADERS, OFFICER, OWNER, PLANNER, HttpError
from dunnage.showing import shown
from dunnage.showing.figures import render
from dunnage.showing.loads import guarantee_words
from dunnage.tables.columns import write_workbook
from dunnage.text import number_text, several

MAX_RELEASE_BYTES, MAX_CITY_BYTES, MAX_CITY_FILES, MAX_SHEET_ROWS = 4 << 30, 2 << 30, 200, 20_000
MODELS = {
    "": "usual: everything fits in the released bounds",
    "standard": "standard",
    "robust": "robust: within a budget of uncertainty",
    "stochastic": "stochastic: fits with a stated chance",
    "sealed": "sealed: no row is assigned, only places",
}
_RELEASES, _PLANS, _CITIES = "public/releases", "public/plans", "public/cities"
_GTFS = {"stops.txt", "stop_times.txt", "trips.txt"}
_DECIMALS = ("risk", "margin", "max_linkage", "time_limit", "max_wait")


# --- releases ----------------------------------------------------------------------------------------------------


def unpack(file: BinaryIO, target: Path, names: Collection[str] | None, *, max_bytes: int, max_files: int) -> None:
    """Unpack an archive into a new folder, without its own folders; a name that is not expected refuses all of it."""
    check_archive(file, max_bytes=max_bytes, max_files=max_files)
    wanted: dict[str, zipfile.ZipInfo] = {}
    with zipfile.ZipFile(file) as archive:
        for item in archive.infolist():
            parts = item.filename.replace("\\", "/").split("/")
            if item.is_dir() or parts[0] == "__MACOSX" or parts[-1] in (".DS_Store", "Thumbs.db"):
                continue
            fits = SAFE.fullmatch(parts[-1]) if names is None else parts[-1] in names
            if not fits or parts[-1] in wanted or len(parts) > 3:
                raise InputError("the file", ["has other files than those of one folder of this kind. It is refused."])
            wanted[parts[-1]] = item
        work = Path(tempfile.mkdtemp(prefix=".work-", dir=target.parent))
        try:
            for name, item in wanted.items():
                with archive.open(item) as source, (work / name).open("wb") as sink:
                    _copy(source, sink, item.file_size)
            os.rename(work, target)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
            raise InputError("the file", ["is a damaged or locked archive. Save it again."]) from None
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _copy(source: Any, sink: BinaryIO, size: int) -> None:
    """Copy as many bytes as the archive states, and no more, whatever it unfolds to."""
    left = size
    while part := source.read(1 << 20):
        left -= len(part)
        if left < 0:
            raise InputError("the file", ["unfolds to more than it states. It is refused."])
        sink.write(part)


def _receive(visit: Visit) -> Response:
    """Keep a release that was uploaded, in a project of its own, and check it."""
    upload = visit.uploads.get("release")
    if upload is None:
        raise HttpError(422, "no_file", "Choose the zip of a release folder first.")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        place = Path(folder) / "release"
        unpack(upload.file, place, RELEASE_FILES, max_bytes=MAX_RELEASE_BYTES, max_files=40)
        if not (place / CERTIFICATE_FILE).is_file():
            raise InputError("the file", [f"has no {CERTIFICATE_FILE}, so it is not a release."])
        project = visit.studio.projects.create(upload.label.rsplit(".", 1)[0], visit.person.name)
        name = project.free_name(_RELEASES, project.name)
        shutil.move(place, project.folder / _RELEASES / name)
    return _verify_job(visit, project, name)


def _verify_job(visit: Visit, project: Project, name: str) -> Response:
    place = f"/studio/projects/{project.id}/planning/{name}"
    argv = ("dunnage", "verify", f"{_RELEASES}/{name}", "--json")
    return visit.wait(visit.start(project, "verify", *argv, role=PLANNER, place=place))


def _verify(visit: Visit) -> Response:
    return _verify_job(visit, visit.project, visit.project.inside(_RELEASES, visit["release"]).name)


def lights_of(visit: Visit, project: Project, name: str) -> Job | None:
    """Return the newest check of a release."""
    jobs = visit.studio.jobs.of(project.id, "verify")
    return next((job for job in jobs if job.argv[2] == f"{_RELEASES}/{name}"), None)


def certificate_of(folder: Path) -> Certificate | None:
    try:
        return Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes())
    except (CheckFailed, OSError):
        return None


def releases_of(project: Project) -> list[tuple[str, Certificate | None]]:
    """Return what has left, the newest first, each with its certificate if that can be read."""
    project.hand_over()
    folders = [path for path in (project.folder / _RELEASES).iterdir() if SAFE.fullmatch(path.name) and path.is_dir()]
    folders.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return [(path.name, certificate_of(path)) for path in folders]


def _planning(visit: Visit) -> Response:
    project = visit.project
    lines = [(name, stated, lights_of(visit, project, name)) for name, stated in releases_of(project)]
    plans = [job for job in visit.studio.jobs.of(project.id, "pack", "size") if job.role == PLANNER]
    return visit.page("planning", title="Plan", project=project, lines=lines, plans=plans)


def _release(visit: Visit) -> Response:
    """Show whether a release is in order, and what can be planned on it."""
    project, name = visit.project, visit["release"]
    folder = project.inside(_RELEASES, name)
    stated, job = certificate_of(folder), lights_of(visit, project, name)
    kind = None if stated is None else kind_of(stated)
    numbers, columns = [], []
    if stated is not None and stated.kind == ROWS:
        numbers = [item for item in stated.attributes if item.domain_kind == "numeric" and not item.clock]
        columns = [item.name for item in stated.attributes if item.role == PUBLIC]
        numbers = [item for item in numbers if item.name not in columns]
    return visit.page(
        "planning_release", title=f"Release {name}", project=project, name=name, stated=stated, job=job,
        promise=guarantee_words(stated.guarantee) if stated else "",
        losses=kind.loss_words(stated) if kind and stated else (),
        numbers=numbers, columns=columns, models=MODELS, counts=stated is not None and stated.kind == COUNTS,
        sent=dict(visit.request.query_params), command=f"dunnage verify {_RELEASES}/{name}",
        files=sorted(path.name for path in folder.iterdir() if path.name in RELEASE_FILES),
    )  # fmt: skip


def _certificate(visit: Visit) -> Response:
    """Write the page of a certificate again: that of the folder may be anything."""
    stated = certificate_of(visit.project.inside(_RELEASES, visit["release"]))
    kind = None if stated is None else kind_of(stated)
    if stated is None or kind is None:
        raise HttpError(422, "certificate", "The certificate cannot be read. Check the release.")
    page = certificate_page(stated, kind.loss_words(stated))
    rules = page.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    return HTMLResponse(page, headers={**HEADERS, "content-security-policy": f"{rules}; frame-ancestors 'none'"})


def _release_file(visit: Visit) -> Response:
    if visit["file"] not in RELEASE_FILES:
        raise HttpError(404, "no_file", "There is no such file.")
    return visit.download(visit.project.inside(_RELEASES, visit["release"], visit["file"]), visit["file"])


def _release_zip(visit: Visit) -> Response:
    return zipped(visit.project.inside(_RELEASES, visit["release"]), visit["release"])


# --- plans -------------------------------------------------------------------------------------------------------


def _given(visit: Visit, *names: str) -> list[str]:
    """Return the options of a command that a form fills in."""
    argv = []
    for name in names:
        text = visit.form.get(name, "").strip()[:200]
        if text:
            if text.startswith("-") or not text.isprintable():
                raise HttpError(422, name, f"{name.replace('_', ' ').capitalize()} cannot be {text!r}.")
            text = text.replace(",", ".") if name in _DECIMALS else text
            argv += [f"--{name.replace('_', '-')}", text]
    return argv


def _received(project: Project, upload: Upload, place: str, ending: str) -> str:
    (project.folder / place).mkdir(mode=0o700, exist_ok=True)
    name = f"{secrets.token_hex(6)}{ending}"
    with (project.folder / place / name).open("xb") as sink:
        upload.file.seek(0)
        shutil.copyfileobj(upload.file, sink, 1 << 20)
    return f"{place}/{name}"


def _pack(visit: Visit) -> Response:
    """Pack a release; the page of the job shows the best plan so far and the bound."""
    project, release = visit.project, visit.project.inside(_RELEASES, visit["release"]).name
    argv = ["dunnage", "pack", f"{_RELEASES}/{release}"]
    for name, amount in zip(visit.lists.get("quantity", []), visit.lists.get("capacity", []), strict=False):
        if amount.strip():
            argv += ["--capacity", f"{name}={amount.strip()[:80].replace(',', '.')}"]
    if upload := visit.uploads.get("trucks"):
        argv += ["--trucks", _received(project, upload, _CITIES, ".csv")]
    elif "--capacity" not in argv:
        raise HttpError(422, "capacity", "Say how much a truck holds, or give a file with trucks.")
    argv += _given(visit, "by", "model", "risk", "spread", "margin", "max_linkage", "time_limit")
    return _plan_job(visit, project, "pack", release, argv)


def is_feed(upload: Upload) -> bool:
    """Say whether an archive has the files of a GTFS feed; refuse one that unfolds too far."""
    check_archive(upload.file, max_bytes=MAX_CITY_BYTES, max_files=MAX_CITY_FILES)
    with zipfile.ZipFile(upload.file) as archive:
        return {name.rsplit("/", 1)[-1] for name in archive.namelist()} >= _GTFS


def received_city(project: Project, upload: Upload, place: str) -> str:
    """Keep a city that was uploaded: a GTFS feed as it is, a city folder unpacked."""
    feed = is_feed(upload)
    city = _received(project, upload, place, ".zip")
    if feed:
        return city
    folder = project.folder / city.removesuffix(".zip")
    unpack(upload.file, folder, None, max_bytes=MAX_CITY_BYTES, max_files=MAX_CITY_FILES)
    return city.removesuffix(".zip")


def _size(visit: Visit) -> Response:
    """Size the fleet of each zone for a release of counts; the city is a GTFS feed or a folder, as one archive."""
    project, release = visit.project, visit.project.inside(_RELEASES, visit["release"]).name
    upload = visit.uploads.get("city")
    if upload is None:
        raise HttpError(422, "no_city", "Choose the zip of a GTFS feed, or of a city folder.")
    argv = ["dunnage", "size", f"{_RELEASES}/{release}", "--city", received_city(project, upload, _CITIES)]
    argv += _given(visit, "max_wait", "capacity", "time_limit", "shift", "day")
    return _plan_job(visit, project, "size", release, argv)


def _plan_job(visit: Visit, project: Project, kind: str, release: str, argv: list[str]) -> Response:
    taken = {_plan_of(job) for job in visit.studio.jobs.of(project.id, "pack", "size")}
    out = project.free_name(_PLANS, f"{release}-plan", taken)
    argv += ["-o", f"{_PLANS}/{out}", "--json"]
    return visit.wait(visit.start(project, kind, *argv, role=PLANNER, place=visit.at("plans", out)))


def _plan_of(job: Job) -> str:
    return job.argv[job.argv.index("-o") + 1].rsplit("/", 1)[-1]


def _plan(visit: Visit) -> Response:
    """Show a plan: what it needs, what it risks, and the files to send back."""
    project, name = visit.project, visit["plan"]
    folder = project.inside(_PLANS, name)
    job = next((one for one in visit.studio.jobs.of(project.id, "pack", "size") if _plan_of(one) == name), None)
    files = sorted(path.name for path in folder.iterdir() if SAFE.fullmatch(path.name))
    fleet = states_fleet_plan(folder)
    return visit.page(
        "plan", title=f"Plan {name}", project=project, name=name, job=job, files=files, text=shown(folder)[1],
        fleet=fleet, page=PLAN_PAGE in files, shared=bool(project.now.data),
        sheets=not fleet and "assignment.csv" in files, result=job.result if job else {},
    )  # fmt: skip


def _plan_file(visit: Visit) -> Response:
    path = visit.project.inside(_PLANS, visit["plan"], visit["file"])
    return visit.document(path) if path.name == PLAN_PAGE else visit.download(path, f"{visit['plan']}-{path.name}")


def _plan_zip(visit: Visit) -> Response:
    return zipped(visit.project.inside(_PLANS, visit["plan"]), visit["plan"])


def _plan_workbook(visit: Visit) -> Response:
    """Send the tables of a plan as a workbook; no cell is a formula."""
    folder, name = visit.project.inside(_PLANS, visit["plan"]), f"{visit['plan']}.xlsx"
    with tempfile.TemporaryDirectory(prefix="plan-") as work:
        write_workbook(folder, Path(work) / name)
        content = (Path(work) / name).read_bytes()
    said = {**HEADERS, "content-disposition": f'attachment; filename="{name}"'}
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    return Response(content, headers=said, media_type=kind)


def _sheets(visit: Visit) -> Response:
    """Write a sheet to print for each truck: its rows, as far as the release shows them."""
    project, name = visit.project, visit["plan"]
    plan = Plan.read(project.inside(_PLANS, name))
    release = _release_of_plan(project, plan)
    if len(release) > MAX_SHEET_ROWS:
        raise ParameterError(f"sheets are for up to {MAX_SHEET_ROWS:,} rows. Download the table instead.")
    columns = [item for item in release.data.column_names if item not in ("row", "class_id")]
    cells = [["" if cell is None else str(cell) for cell in release.as_text("data").column(item).to_pylist()]
             for item in columns]  # fmt: skip
    bins, sheets = plan.assignment.tolist(), []
    for number, truck in enumerate(plan.truck_of_bin):
        rows = [row for row, place in enumerate(bins) if place == number]
        lines = [(*(column[row] for column in cells), str(row)) for row in rows]
        holds = ", ".join(f"{item} {number_text(room)} {plan.units[item]}".rstrip()
                          for item, room in plan.truck(truck).capacity.items())  # fmt: skip
        sheets.append((f"Truck {number}", several(len(rows), plan.protects), f"it holds {holds}", lines))
    page = render(
        "studio/sheets.html",
        {"title": f"Plan {name}", "columns": [*columns, "Row of the release"], "sheets": sheets, "unit": plan.protects},
    )
    return HTMLResponse(page, headers={**HEADERS, "content-security-policy": POLICY})


def _release_of_plan(project: Project, plan: Plan) -> Release:
    """Return the release that a plan was made on: the one with its digest."""
    for name, stated in releases_of(project):
        if stated is not None and stated.digest == plan.release:
            return Release.read(project.folder / _RELEASES / name)
    raise ReleaseError("the release of this plan is not here any more.")


_P = "/studio/projects/{project}"
_READERS = (PLANNER, OWNER, OFFICER, AUDITOR)  # of what has left
ROUTES: Routes = {
    "POST /studio/received": ((PLANNER,), _receive),
    f"GET {_P}/planning": ((PLANNER,), _planning),
    f"GET {_P}/planning/{{release}}": ((PLANNER,), _release),
    f"POST {_P}/planning/{{release}}/verify": ((PLANNER,), _verify),
    f"GET {_P}/planning/{{release}}/certificate": (_READERS, _certificate),
    f"GET {_P}/planning/{{release}}/files/{{file}}": (_READERS, _release_file),
    f"GET {_P}/planning/{{release}}/zip": (_READERS, _release_zip),
    f"POST {_P}/planning/{{release}}/pack": ((PLANNER,), _pack),
    f"POST {_P}/planning/{{release}}/size": ((PLANNER,), _size),
    f"GET {_P}/plans/{{plan}}": ((PLANNER, OWNER), _plan),
    f"GET {_P}/plans/{{plan}}/files/{{file}}": ((PLANNER, OWNER), _plan_file),
    f"GET {_P}/plans/{{plan}}/zip": ((PLANNER, OWNER), _plan_zip),
    f"GET {_P}/plans/{{plan}}/xlsx": ((PLANNER, OWNER), _plan_workbook),
    f"GET {_P}/plans/{{plan}}/sheets": ((PLANNER, OWNER), _sheets),
}
NAV = [(f"{_P}/planning", "Plan")]
