# SPDX-License-Identifier: Apache-2.0
"""The owner's pages: from a file to a release, and from a returned plan to the dock and the next week."""

from __future__ import annotations

from starlette.responses import Response

from dunnage.serving.studio import Routes, Visit
from dunnage.serving.web import OWNER, HttpError


def _begin(visit: Visit) -> Response:
    """Keep an uploaded file in a new project, and look at its columns."""
    upload = visit.uploads.get("file")
    if upload is None:
        raise HttpError(422, "no_file", "Choose a file first.")
    project = visit.studio.projects.create(upload.label.rsplit(".", 1)[0], visit.person.name)
    file = visit.studio.projects.add_file(project, upload.label, upload.file, upload.size)
    visit.studio.projects.change(project, project.version, f"File {file.label}", visit.person.name, data=file.number)
    place = f"/studio/projects/{project.id}/columns"
    job = visit.start(project, "survey", "dunnage.serving.survey", file.name, project.name, role=OWNER, place=place)
    return visit.wait(job)


def _columns(visit: Visit) -> Response:
    project = visit.project
    job = next(iter(visit.studio.jobs.of(project.id, "survey")), None)
    return visit.page("columns", title="Columns", project=project, survey=job.result if job else {})


ROUTES: Routes = {
    "POST /studio/projects": ((OWNER,), _begin),
    "GET /studio/projects/{project}/columns": ((OWNER,), _columns),
}
NAV = [("/studio/projects/{project}/columns", "Columns")]
