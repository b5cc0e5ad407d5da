# SPDX-License-Identifier: Apache-2.0
"""dunnage serve: the collector that vehicles report to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from dunnage.cli import shared
from dunnage.cli.shared import OptPath, OptText, print_result, print_text
from dunnage.errors import ParameterError


def serve(
    data: Annotated[OptText, Option(help="Folder for the store and the releases. Default: collector-data.")] = None,
    database: Annotated[OptText, Option(help="PostgreSQL address, in place of SQLite files in the folder.")] = None,
    listen: Annotated[OptText, Option(help="Address and port. Default: 127.0.0.1:8443.")] = None,
    tls_in_front: Annotated[bool, Option("--tls-in-front", help="A proxy in front of it ends TLS.")] = False,
    sign: shared.SignOption = None,
    config: Annotated[OptPath, Option(help="TOML file with settings; flags and DUNNAGE_SERVE_... come first.")] = None,
    invite: Annotated[OptText, Option(help="Give a person or program a role, print the token, and exit.")] = None,
    role: Annotated[OptText, Option(help="With --invite: operator | analyst | monitor.")] = None,
    check: Annotated[bool, Option("--check", help="Check settings and store, and exit.")] = False,
    as_json: shared.JsonFlag = False,
) -> None:
    """Run the collector: take in reports of devices, close periods, make estimates.

    Without options it keeps everything in a folder and listens on this machine only. It stops on SIGTERM, after
    everything it took in is stored.

    Example: dunnage serve --data collector-data
    """
    try:
        import msgspec  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ParameterError("dunnage serve needs more packages. Install dunnage[serve].") from None
    from dunnage.serving.service import OPERATOR, Service, make_app, run
    from dunnage.serving.settings import read_settings

    flags = {"data": data, "database": database, "listen": listen, "tls_in_front": tls_in_front or None}
    settings = read_settings({**flags, "sign": None if sign is None else str(sign)}, config)
    if (invite is None) != (role is None):
        raise ParameterError("--invite and --role belong together. Give both.")
    if settings.sign is not None:
        from dunnage.model.certificate import load_private_key

        load_private_key(settings.sign)  # fail now, not at the first closing
    if invite is not None and role is not None:
        service = Service(settings.model_copy(update={"listen": "127.0.0.1:0"}))
        token = service.invite(invite, role)
        service.collector.stop()
        print_result({"name": invite, "role": role, "token": token}, f"Token     {token} (shown once)", as_json)
        return
    service = Service(settings)
    make_app(service)
    if check:
        service.collector.stop()
        facts = {"tasks": len(service.collector.tasks), "senders": len(service.senders), "people": len(service.people)}
        lines = [f"Ready     {settings.database or settings.data}, would listen on {settings.listen}"]
        lines.append(f"Has       {facts['tasks']} tasks, {facts['senders']} senders, {facts['people']} people")
        print_result(facts, "\n".join(lines), as_json)
        return
    own = Path(settings.data) / "operator.token"
    if not service.people:
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.touch(mode=0o600)
        own.write_text(service.invite("first operator", OPERATOR))
        print_text(f"Operator  {own} has the token of the first operator (private)")
    if service.link:
        print_text(f"Pages     {service.link} (works once)")
    raise typer.Exit(run(service))
