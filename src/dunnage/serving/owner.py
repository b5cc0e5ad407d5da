# SPDX-License-Identifier: Apache-2.0
"""The owner's pages: from a file to a release, and from a returned plan to the dock and the next week."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shlex
import shutil
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, Response

from dunnage.auditing.run import PAGE_FILE, SIGNOFF_FILE
from dunnage.errors import DunnageError, LedgerError, ParameterError
from dunnage.ledger import Ledger
from dunnage.ledger.telling import Told, told
from dunnage.model.certificate import Certificate, meaning
from dunnage.model.guarantees import Promise
from dunnage.model.policy import Policy
from dunnage.publication import key_path
from dunnage.publishing import unplanned_path
from dunnage.release import CERTIFICATE_FILE, Release
from dunnage.serving import forms
from dunnage.serving.jobs import DONE, Job
from dunnage.serving.projects import SAFE, File, Project, check_archive
from dunnage.serving.studio import Routes, Upload, Visit
from dunnage.serving.web import HEADERS, OFFICER, OWNER, HttpError
from dunnage.settle import LOADING_PAGE, SETTLEMENT_FILE, SETTLEMENT_PAGE
from dunnage.showing import figures as draw
from dunnage.showing import shown
from dunnage.showing.loads import guarantee_words
from dunnage.text import time_text

MAX_PLAN_BYTES = 256 << 20
_PREVIEW, _PUBLISH = "preview", "publish"

# --- files and columns -------------------------------------------------------------------------------------------


def _upload(visit: Visit, name: str = "file") -> Upload:
    upload = visit.uploads.get(name)
    if upload is None:
        raise HttpError(422, "no_file", "Choose a file first.")
    return upload


def _begin(visit: Visit) -> Response:
    """Keep an uploaded file in a new project, and look at its columns."""
    upload = _upload(visit)
    project = visit.studio.projects.create(upload.label.rsplit(".", 1)[0], visit.person.name)
    return _take_file(visit, project, project.version, upload)


def _replace_file(visit: Visit) -> Response:
    return _take_file(visit, visit.project, visit.version, _upload(visit))


def _take_file(visit: Visit, project: Project, version: int, upload: Upload) -> Response:
    file = visit.studio.projects.add_file(project, upload.label, upload.file, upload.size)
    visit.studio.projects.change(project, version, f"File {file.label}", visit.person.name, data=file.number)
    place = f"/studio/projects/{project.id}/columns"
    job = visit.start(project, "survey", "dunnage.serving.survey", file.name, project.name, role=OWNER, place=place)
    return visit.wait(job)


def _survey(visit: Visit, project: Project, file: File) -> Job | None:
    """Return the newest look at the current file."""
    return next((job for job in visit.studio.jobs.of(project.id, "survey") if job.argv[1] == file.name), None)


def _columns(visit: Visit) -> Response:
    return _columns_page(visit, visit.project, visit.request.query_params.get("story", ""), {}, [])


def _columns_page(visit: Visit, project: Project, story: str, sent: Mapping[str, str], problems: list[str]) -> Response:
    """Show each column with one choice; what a form sent, then what the policy says, then what is usual fills it in."""
    file = visit.studio.projects.file(project)
    job = _survey(visit, project, file)
    if job is None or job.state != DONE:
        waits = job is not None and not job.is_over
        return visit.wait(job.id) if waits and job else visit.page(
            "no_columns", title="Columns", project=project, file=file, says=visit.said(job) if job else ""
        )  # fmt: skip
    survey, written = job.result, tomllib.loads(project.policy_text())
    story = (
        story if story in ("rows", "trips") else "trips" if "trip" in written else "" if written else survey["story"]
    )
    base = written if written and ("trip" in written) == (story == "trips") else survey["drafts"].get(story)
    base = base or survey["drafts"]["rows"]
    name = str(base["mechanism"]["name"])
    return visit.page(
        "columns", 422 if problems else 200, title="Columns", project=project, file=file, survey=survey, base=base,
        trips="trip" in base, sent=sent, problems=problems, roles=forms.ROLES, devices=survey["story"] == "devices",
        choices=forms.choices(trips="trip" in base), chosen=sent.get("mechanism", name),
        parameter=forms.privacy_parameter(sent.get("mechanism", name)), toml=project.policy_text(),
        files=visit.studio.projects.files(project),
        command=shlex.join(["dunnage", "draft", file.name, "-o", "policy.toml"]),
    )  # fmt: skip


def _save_columns(visit: Visit) -> Response:
    """Write the form as a policy; one that cannot be used comes back with everything that is wrong."""
    project, version, form = visit.project, visit.version, visit.form
    file = visit.studio.projects.file(project)
    job = _survey(visit, project, file)
    if job is None or job.state != DONE:
        return visit.go(visit.at("columns"))
    story = form.get("story", "")
    base = tomllib.loads(project.policy_text())
    if not base or ("trip" in base) != (story == "trips"):
        base = job.result["drafts"].get(story) or job.result["drafts"]["rows"]
    try:
        stops = form.get("stops", "")
        if upload := visit.uploads.get("stops_file"):
            stops = f"../{visit.studio.projects.add_file(project, upload.label, upload.file, upload.size).name}"
        document = forms.document_of(form, base, job.result["columns"], stops)
        text = forms.checked(document, project.folder / "policies" / "next.toml")
    except DunnageError as error:
        return _columns_page(visit, project, story, form, list(forms.problems_of(error)))
    settings = {"capacity": form.get("capacity", "").strip()[:200], "period": form.get("period", "").strip()[:80]}
    what = "Columns and privacy"
    visit.studio.projects.change(project, version, what, visit.person.name, policy=text, settings=settings)
    return visit.go(visit.at("preview"))


def _save_policy(visit: Visit) -> Response:
    """Keep a policy that was written as TOML."""
    project, text = visit.project, visit.form.get("policy", "")
    try:
        text = forms.checked(text.replace("\r\n", "\n"), project.folder / "policies" / "next.toml")
    except DunnageError as error:
        problems = list(forms.problems_of(error))
        return visit.page("error", 422, title="The policy cannot be used", project=project, sentences=problems)
    visit.studio.projects.change(project, visit.version, "Policy as TOML", visit.person.name, policy=text)
    return visit.go(visit.at("preview"))


def ready(visit: Visit) -> Project:
    """Return the project; without a policy, its columns come first."""
    project = visit.project
    if not project.now.policy:
        raise HttpError(409, "no_policy", "Say first what each column is: open the page Columns.")
    return project


# --- preview -----------------------------------------------------------------------------------------------------


def _preview(visit: Visit) -> Response:
    """Show what publishing would do with the k or epsilon of the slider. It runs in the background."""
    project, asked = ready(visit), visit.request.query_params
    text = project.policy_text()
    policy = Policy.from_text(text, path=project.folder / project.policy)
    parameter = forms.privacy_parameter(str(policy.mechanism["name"]))
    amount = asked.get("amount", "").strip() or str(policy.mechanism.get(parameter, ""))
    capacity = asked.get("capacity", project.settings.get("capacity", "")).strip()[:200]
    period = asked.get("period", project.settings.get("period", "")).strip()[:80] if policy.period else ""
    if amount != str(policy.mechanism.get(parameter, "")):
        text = forms.checked(forms.with_amount(text, amount), project.folder / "previews" / "next.toml")
    job = _preview_job(visit, project, text, capacity, period)
    content: Any = {
        "project": project, "job": job, "said": visit.said, "amount": amount, "parameter": parameter,
        "capacity": capacity, "period": period, "periodic": policy.period is not None,
        "trips": policy.schema.trip is not None,
        "changed": text != project.policy_text() or capacity != project.settings.get("capacity", "")
        or period != project.settings.get("period", ""),
        "command": _command(visit, project, period, "-o", "release", "--dry-run"), "toml": text,
    }  # fmt: skip
    if visit.request.headers.get("hx-request"):
        if not job.is_over and asked.get("seen") == job.stage:  # what is shown stays
            return Response(status_code=204, headers=HEADERS)
        return HTMLResponse(draw.render("studio/preview_part.html", content), headers=HEADERS)
    return visit.page("preview", title="Preview", **content)


def _preview_job(visit: Visit, project: Project, text: str, capacity: str, period: str) -> Job:
    """Return the job that previews a policy: the one that did, or a new one. Older ones that still run are useless."""
    file = visit.studio.projects.file(project)
    given = ["--data", file.name, "--ledger", visit.studio.ledger, "--capacity", capacity, "--period", period]
    given += ["--city", project.settings["city"]] if project.settings.get("city") else []
    key = hashlib.sha256("\n".join([text, *given]).encode()).hexdigest()[:24]
    path = project.folder / "previews" / f"{key}.toml"
    argv = ("dunnage.serving.preview", "--policy", f"previews/{key}.toml", *given)
    for job in visit.studio.jobs.of(project.id, _PREVIEW):
        if job.argv == argv and job.state in ("waiting", "running", DONE, "failed"):
            return job
        if not job.is_over:
            visit.studio.jobs.cancel(job.id)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as sink:
        sink.write(text)
    started = visit.start(project, _PREVIEW, *argv, role=OWNER, place=visit.at("preview"))
    new = visit.studio.jobs.get(started)
    assert new is not None
    return new


def _keep(visit: Visit) -> Response:
    """Keep what the preview shows: its k or epsilon, or a remedy it offers."""
    project, form = ready(visit), visit.form
    text, what = project.policy_text(), "Preview kept"
    if form.get("remedy"):
        job = visit.studio.jobs.get(form.get("job", ""))
        remedies = job.result.get("offers", []) if job is not None and job.project == project.id else []
        chosen = [one for one in remedies if one["label"] == form["remedy"]]
        if not chosen:
            raise HttpError(404, "no_remedy", "This remedy is no longer offered. Open the preview again.")
        text, what = chosen[0]["policy"], chosen[0]["label"]
    elif form.get("amount", "").strip():
        text = forms.with_amount(text, form["amount"])
    text = forms.checked(text, project.folder / "policies" / "next.toml")
    settings: dict[str, str | None] = {
        name: form[name].strip()[:200] for name in ("capacity", "period") if name in form
    }
    visit.studio.projects.change(project, visit.version, what, visit.person.name, policy=text, settings=settings)
    return visit.go(visit.at(_PUBLISH if form.get("next") == _PUBLISH else _PREVIEW))


def _command(visit: Visit, project: Project, period: str, *more: str) -> str:
    return shlex.join(_publish_argv(visit, project, visit.studio.projects.file(project), period, *more))


def _publish_argv(visit: Visit, project: Project, file: File, period: str, *more: str) -> list[str]:
    of_period = ["--period", period] if period else []
    return [
        "dunnage",
        "publish",
        file.name,
        "--policy",
        project.policy,
        "--ledger",
        visit.studio.ledger,
        *of_period,
        *more,
    ]


# --- publish -----------------------------------------------------------------------------------------------------


def book_of(visit: Visit, dataset: str) -> Told | None:
    """Return what the ledger says about a dataset; None if it has nothing yet."""
    try:
        with Ledger.open_existing(visit.studio.ledger) as book:
            return told(book, dataset) if dataset in book.datasets() else None
    except LedgerError:
        return None


def _unfinished(visit: Visit, project: Project, dataset: str) -> list[tuple[Job, bool]]:
    """Return runs of publish that ended without a release, and whether the ledger has a spend of each that is open."""
    runs, seen, settled = list[tuple[Job, bool]](), set[str](), False
    for job in visit.studio.jobs.of(project.id, _PUBLISH):  # the newest first
        name, is_new = _release_of(job), _release_of(job) not in seen
        seen.add(name)
        settled = settled or job.state == DONE  # earlier refusals are of no interest any more
        if not is_new or not job.is_over or job.state == DONE:
            continue
        paid = False
        with contextlib.suppress(LedgerError), Ledger.open_existing(visit.studio.ledger) as book:
            paid = bool(book.open_spends(dataset, str(project.folder / "releases" / name)))
        if paid or not (settled or name in project.releases):
            runs.append((job, paid))
    return runs


def _release_of(job: Job) -> str:
    return job.argv[job.argv.index("-o") + 1].rsplit("/", 1)[-1]


def _publish_page(visit: Visit) -> Response:
    project = ready(visit)
    policy = Policy.read(project.folder / project.policy)
    book, file = book_of(visit, policy.dataset), visit.studio.projects.file(project)
    period = project.settings.get("period", "") if policy.period else ""
    runs = visit.studio.jobs.of(project.id, _PUBLISH)
    return visit.page(
        "publish", title="Publish", project=project, policy=policy, book=book, file=file, period=period,
        promise=_promise(policy), running=[job for job in runs if not job.is_over],
        unfinished=_unfinished(visit, project, policy.dataset), toml=project.policy_text(),
        proposals=list(book.proposals.items()) if book else [], rule=book.rule if book else None,
        command=_command(visit, project, period, "-o", "releases/NAME", "--sign", "KEY.pem"),
    )  # fmt: skip


def _promise(policy: Policy) -> dict[str, object]:
    from dunnage.publishing import promise

    stated: Promise = promise(policy)
    words, basis = guarantee_words(stated.guarantee), str(stated.basis)
    return {"words": words, "basis": basis, "meaning": meaning(stated).sentences, "in_clear": stated.in_clear}


def _publish(visit: Visit) -> Response:
    """Publish: the one job that spends. It is started once; what becomes of it stands in the ledger."""
    project, form = ready(visit), visit.form
    if project.version != visit.version:  # what is published must be what this page showed
        raise HttpError(409, "changed", "The project was changed since you opened this page. Look at it again first.")
    policy = Policy.read(project.folder / project.policy)
    period = form.get("period", "").strip() if policy.period else ""
    runs = visit.studio.jobs.of(project.id, _PUBLISH)
    if any(not job.is_over for job in runs):
        raise HttpError(409, "running", "This project is being published already. Wait until it is done.")
    name = project.free_name("releases", period or policy.dataset, {_release_of(job) for job in runs})
    more = ["-o", f"releases/{name}"]
    more += ["--again"] if form.get("again") else []
    more += ["--allow-noise"] if form.get("allow_noise") else []
    for option in ("known_rows", "exception"):
        more += [f"--{option.replace('_', '-')}", form[option].strip()] if form.get(option, "").strip() else []
    more += ["--sign", str(visit.studio.key_of(visit.person))] if form.get("sign") else []
    argv = [*_publish_argv(visit, project, visit.studio.projects.file(project), period, *more), "--json"]
    job = visit.start(project, _PUBLISH, *argv, role=OWNER, place=visit.at("releases", name), spends=True)
    return visit.wait(job)


def _resume(visit: Visit) -> Response:
    """Finish a run that was stopped, as the ledger says: nothing is drawn again."""
    project = visit.project
    stopped = visit.studio.jobs.get(visit.form.get("job", ""))
    if stopped is None or stopped.project != project.id or not stopped.spends or not stopped.is_over:
        raise HttpError(404, "no_job", "There is no such run.")
    argv = [*(part for part in stopped.argv if part != "--resume"), "--resume"]
    job = visit.start(project, _PUBLISH, *argv, role=OWNER, place=stopped.place, spends=True)
    return visit.wait(job)


def _propose(visit: Visit) -> Response:
    """Propose the release for somebody else to approve; nothing is spent."""
    project = ready(visit)
    policy = Policy.read(project.folder / project.policy)
    period = visit.form.get("period", "").strip() if policy.period else ""
    file, key = visit.studio.projects.file(project), visit.studio.key_of(visit.person)
    argv = ["dunnage", "propose", file.name, "--policy", project.policy, "--ledger", visit.studio.ledger]
    argv += ["--sign", str(key), *(["--period", period] if period else [])]
    argv += ["--note", visit.form["note"].strip()[:500]] if visit.form.get("note", "").strip() else []
    return visit.wait(visit.start(project, "propose", *argv, "--json", role=OWNER, place=visit.at(_PUBLISH)))


# --- releases ----------------------------------------------------------------------------------------------------


def _releases(visit: Visit) -> Response:
    project = visit.project
    project.hand_over()
    lines = [(name, Certificate.from_bytes((project.folder / "releases" / name / CERTIFICATE_FILE).read_bytes()))
             for name in project.releases]  # fmt: skip
    unfinished = []
    if project.now.policy:
        unfinished = _unfinished(visit, project, str(tomllib.loads(project.policy_text()).get("dataset")))
    return visit.page("releases", title="Releases", project=project, lines=lines, unfinished=unfinished)


def _release(visit: Visit) -> Response:
    project, name = visit.project, visit["release"]
    folder = project.inside("releases", name)
    project.hand_over()
    certificate, key = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()), key_path(folder)
    done = next((job for job in visit.studio.jobs.of(project.id, _PUBLISH) if _release_of(job) == name), None)
    files = sorted(path.name for path in folder.iterdir() if SAFE.fullmatch(path.name))
    jobs = visit.studio.jobs.of(project.id, "apply", "audit")
    about = [job for job in jobs if job.state == DONE and f"releases/{name}" in job.argv]
    plans = sorted(path.name for path in (project.folder / "public/plans").iterdir() if SAFE.fullmatch(path.name))
    return visit.page(
        "release", title=f"Release {name}", project=project, name=name, certificate=certificate, files=files,
        text=shown(folder)[1], key=key.name if key.exists() else "", unplanned=unplanned_path(folder).exists(),
        done=done, about=about, plans=plans, capacity=project.settings.get("capacity", ""),
        counts=certificate.kind == "counts", promise=guarantee_words(certificate.guarantee),
        command=f"dunnage verify releases/{name}", num=certificate.kind == "rows" and len(Release.read(folder)),
    )  # fmt: skip


def zipped(folder: Path, name: str) -> Response:
    """Send a folder as one archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            if path.is_file():
                archive.write(path, f"{name}/{path.name}")
    said = {**HEADERS, "content-disposition": f'attachment; filename="{name}.zip"'}
    return Response(content.getvalue(), headers=said, media_type="application/zip")


def _release_zip(visit: Visit) -> Response:
    project = visit.project
    project.hand_over()
    return zipped(project.inside("public/releases", visit["release"]), visit["release"])


def _private_file(visit: Visit) -> Response:
    """Send a file of the owner's own: of a release, a settlement or an audit, or the list of what was not released."""
    project, place, name, file = visit.project, visit["place"], visit["name"], visit["file"]
    if place not in ("releases", "settlements", "audits"):
        raise HttpError(404, "no_file", "There is no such file.")
    if place == "releases" and file == "unplanned.csv":
        path = unplanned_path(project.inside("releases", name))
        if not path.exists():
            raise HttpError(404, "no_file", "There is no such file.")
        return visit.download(path, f"{name}.unplanned.csv")
    path = project.inside(place, name, file)
    return visit.document(path) if path.suffix == ".html" else visit.download(path, f"{name}-{file}")


# --- plans that come back ----------------------------------------------------------------------------------------


def _apply(visit: Visit) -> Response:
    """Apply a plan to the true data: one from this studio's planner, or one that was sent."""
    project, name, form = visit.project, visit["release"], visit.form
    folder = project.inside("releases", name)
    if upload := visit.uploads.get("plan_file"):
        plan = _received_plan(project, upload)
    elif form.get("plan"):
        plan = f"public/plans/{project.inside('public/plans', form['plan']).name}"
    else:
        raise HttpError(422, "no_plan", "Choose a plan, or a file with one.")
    file, policy = _source_of(visit, project, name)
    period = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).period
    out = project.free_name("settlements", f"{name}-applied")
    argv = ["dunnage", "apply", plan, file, "--policy", policy, "--release", f"releases/{name}"]
    argv += ["--period", period] if period else []
    argv += ["--repair"] if form.get("repair") else []
    argv += ["--leave-behind"] if form.get("leave_behind") else []
    if upload := visit.uploads.get("city"):  # of a fleet that was sized elsewhere; private, as whatever owners upload
        from dunnage.serving.planner import received_city

        argv += ["--city", received_city(project, upload, "received")]
    for job in visit.studio.jobs.of(project.id, "size"):  # a fleet runs in the city that it was sized for
        if plan in job.argv and "--city" not in argv:
            argv += ["--city", job.argv[job.argv.index("--city") + 1]]
    if form.get("capacity", "").strip() and not (project.folder / plan).is_dir():
        argv += [part for text in form["capacity"].split(",") if text.strip() for part in ("--capacity", text.strip())]
    argv += ["-o", f"settlements/{out}", "--json"]
    return visit.wait(visit.start(project, "apply", *argv, role=OWNER, place=visit.at("settlements", out)))


def _received_plan(project: Project, upload: Upload) -> str:
    """Keep a plan that was sent: a CSV file, or the folder of a plan as one archive."""
    name = project.free_name("received", "plan")
    head = upload.file.read(4)
    upload.file.seek(0)
    if head != b"PK\x03\x04":
        place = f"received/{name}.csv"
        with (project.folder / place).open("wb") as sink:
            shutil.copyfileobj(upload.file, sink)
        return place
    check_archive(upload.file, max_bytes=MAX_PLAN_BYTES, max_files=100)
    (project.folder / "received" / name).mkdir(mode=0o700)
    with zipfile.ZipFile(upload.file) as archive:
        for item in archive.infolist():
            last = item.filename.replace("\\", "/").rsplit("/", 1)[-1]
            if not item.is_dir() and SAFE.fullmatch(last) and not last.endswith((".html", ".js")):
                with archive.open(item) as source, (project.folder / "received" / name / last).open("wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    return f"received/{name}"


def _source_of(visit: Visit, project: Project, release: str) -> tuple[str, str]:
    """Return the file and the policy that a release was made from: those of the run that published it."""
    for job in visit.studio.jobs.of(project.id, _PUBLISH):
        if _release_of(job) == release:
            return job.argv[2], job.argv[job.argv.index("--policy") + 1]
    raise ParameterError("the studio does not know which file this release was made from.")


def _settlement(visit: Visit) -> Response:
    project, name = visit.project, visit["name"]
    folder = project.inside("settlements", name)
    job = next((one for one in visit.studio.jobs.of(project.id, "apply") if f"settlements/{name}" in one.argv), None)
    files = sorted(path.name for path in folder.iterdir())
    pages = [(file, words) for file, words in ((SETTLEMENT_PAGE, "What overflowed, and the repair"),
             (LOADING_PAGE, "Loading list for the dock")) if file in files]  # fmt: skip
    text = shown(folder / SETTLEMENT_FILE if (folder / SETTLEMENT_FILE).is_file() else folder)[1]
    return visit.page(
        "result", title="Plan applied", project=project, place="settlements", name=name, job=job, pages=pages,
        files=files, text=text, release=job.argv[job.argv.index("--release") + 1].rsplit("/", 1)[-1] if job else "",
    )  # fmt: skip


def _audit(visit: Visit) -> Response:
    project, name = visit.project, visit["release"]
    folder = project.inside("releases", name)
    file, policy = _source_of(visit, project, name)
    period = Certificate.from_bytes((folder / CERTIFICATE_FILE).read_bytes()).period
    out = project.free_name("audits", f"{name}-audit")
    argv = ["dunnage", "audit", f"releases/{name}", file, "--policy", policy, "-o", f"audits/{out}"]
    argv += ["--period", period] if period else []
    if visit.form.get("plan"):
        argv += ["--plan", f"public/plans/{project.inside('public/plans', visit.form['plan']).name}"]
    if visit.form.get("approved_by", "").strip():
        argv += ["--approved-by", visit.form["approved_by"].strip()[:100]]
    return visit.wait(visit.start(project, "audit", *argv, "--json", role=OWNER, place=visit.at("audits", out)))


def _audit_page(visit: Visit) -> Response:
    project, name = visit.project, visit["name"]
    folder = project.inside("audits", name)
    job = next((one for one in visit.studio.jobs.of(project.id, "audit") if f"audits/{name}" in one.argv), None)
    files = sorted(path.name for path in folder.iterdir())
    pages = [(PAGE_FILE, "The audit"), (SIGNOFF_FILE, "One page to sign")]
    return visit.page(
        "result", title="Audit", project=project, place="audits", name=name, job=job, files=files,
        text=shown(folder)[1],
        pages=[page for page in pages if page[0] in files], release=job.argv[2].rsplit("/", 1)[-1] if job else "",
    )  # fmt: skip


# --- next week, and history --------------------------------------------------------------------------------------


def _next_page(visit: Visit) -> Response:
    project = ready(visit)
    policy = Policy.read(project.folder / project.policy)
    files, period = visit.studio.projects.files(project), project.settings.get("period", "")
    how: Any = {"policy": policy, "same": None, "files": files, "period": period}
    return visit.page("next", title="Next period", project=project, **how)


def _next(visit: Visit) -> Response:
    """Take the file of the next period under the same policy; warn if it is one that was there before."""
    project, upload, form = ready(visit), _upload(visit), visit.form
    policy = Policy.read(project.folder / project.policy)
    before = visit.studio.projects.files(project)
    file = visit.studio.projects.add_file(project, upload.label, upload.file, upload.size)
    same = next((one for one in before if one.digest == file.digest), None)
    if same is not None and not form.get("same_file"):
        return visit.page("next", 409, title="Next period", project=project, policy=policy, files=before, same=same,
                          period=form.get("period", ""))  # fmt: skip
    what, settings = f"Next period, file {file.label}", {"period": form.get("period", "").strip()[:80]}
    visit.studio.projects.change(project, visit.version, what, visit.person.name, data=file.number, settings=settings)
    return visit.go(visit.at(_PREVIEW))


def _history(visit: Visit) -> Response:
    """Show every version of the project, and what the ledger says about its dataset."""
    project = visit.project
    dataset = str(tomllib.loads(project.policy_text()).get("dataset", ""))
    book = book_of(visit, dataset)
    changes = [(change, time_text(_iso(change.at))) for change in visit.studio.projects.history(project)]
    spends = []
    for spend in reversed(book.statement.spends if book else ()):
        became = book.spends[spend.id].partition(" in ")[0] if book else ""
        loss = str(spend.loss(book.statement.neighbours)) if book else ""
        spends.append([time_text(spend.at), spend.period or "none", loss, became])
    how: Any = {
        "spends": spends,
        "told": book.text() if book else "",
        "command": f"dunnage ledger show {visit.studio.ledger}",
    }
    return visit.page("history", title="History", project=project, changes=changes, dataset=dataset, book=book, **how)


def _iso(seconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _undo(visit: Visit) -> Response:
    to = visit.form.get("to", "")
    if not to.isdigit():
        raise HttpError(422, "version", "Choose a version.")
    visit.studio.projects.undo(visit.project, visit.version, int(to), visit.person.name)
    return visit.go(visit.at("history"))


_P = "/studio/projects/{project}"
ROUTES: Routes = {
    "POST /studio/projects": ((OWNER,), _begin),
    f"POST {_P}/file": ((OWNER,), _replace_file),
    f"GET {_P}/columns": ((OWNER,), _columns),
    f"POST {_P}/columns": ((OWNER,), _save_columns),
    f"POST {_P}/policy": ((OWNER,), _save_policy),
    f"GET {_P}/preview": ((OWNER,), _preview),
    f"POST {_P}/keep": ((OWNER,), _keep),
    f"GET {_P}/publish": ((OWNER,), _publish_page),
    f"POST {_P}/publish": ((OWNER,), _publish),
    f"POST {_P}/resume": ((OWNER,), _resume),
    f"POST {_P}/propose": ((OWNER,), _propose),
    f"GET {_P}/releases": ((OWNER,), _releases),
    f"GET {_P}/releases/{{release}}": ((OWNER,), _release),
    f"GET {_P}/releases/{{release}}/zip": ((OWNER,), _release_zip),
    f"POST {_P}/releases/{{release}}/apply": ((OWNER,), _apply),
    f"POST {_P}/releases/{{release}}/audit": ((OWNER,), _audit),
    f"GET {_P}/files/{{place}}/{{name}}/{{file}}": ((OWNER,), _private_file),
    f"GET {_P}/settlements/{{name}}": ((OWNER,), _settlement),
    f"GET {_P}/audits/{{name}}": ((OWNER,), _audit_page),
    f"GET {_P}/next": ((OWNER,), _next_page),
    f"POST {_P}/next": ((OWNER,), _next),
    f"GET {_P}/history": ((OWNER, OFFICER), _history),
    f"POST {_P}/undo": ((OWNER,), _undo),
}
NAV = [
    (f"{_P}/columns", "Columns"),
    (f"{_P}/preview", "Preview"),
    (f"{_P}/publish", "Publish"),
    (f"{_P}/releases", "Releases"),
    (f"{_P}/next", "Next period"),
    (f"{_P}/history", "History"),
]
