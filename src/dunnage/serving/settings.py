# SPDX-License-Identifier: Apache-2.0
"""Settings of ``dunnage serve``: from flags, then the environment, then a TOML file."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dunnage.errors import InputError, ParameterError
from dunnage.model.documents import Model, check

if TYPE_CHECKING:
    from dunnage.serving.signin import Provider

PREFIX = "DUNNAGE_SERVE_"  # of the variables of the environment
MAX_BYTES = 1 << 20


class Settings(Model):
    """How a collector runs."""

    data: str = Field("collector-data", description="a folder, for the store and the releases")
    database: str | None = Field(None, description='"postgresql://...", in place of SQLite files in the folder')
    listen: str = Field("127.0.0.1:8443", description='an address and a port, such as "127.0.0.1:8443"')
    tls_in_front: bool = Field(False, description="true if a proxy in front of it ends TLS")
    site: str | None = Field(
        None, description='the address that people open, for passkeys and accounts: "https://studio.example.org"'
    )
    oidc_issuer: str | None = Field(None, description="an OpenID Connect provider, such as https://login.example.org")
    oidc_client: str | None = Field(None, description="the name that the provider knows the studio by")
    oidc_secret_file: str | None = Field(None, description="a file with the secret that belongs to that name")
    sign: str | None = Field(
        None, description="a file with an Ed25519 private key (PEM), to sign closings and releases"
    )
    max_bytes: Annotated[int, Field(ge=1 << 12, le=1 << 27)] = Field(
        1 << 23, description="a whole number: bytes of one request"
    )
    max_reports: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        10_000, description="a whole number: reports of one request"
    )
    max_pending: Annotated[int, Field(ge=1 << 12)] = Field(
        1 << 26, description="a whole number: bytes that may wait to be stored"
    )
    requests_per_minute: Annotated[int, Field(ge=1)] = Field(60, description="a whole number: requests of one sender")
    body_seconds: Annotated[int, Field(ge=1)] = Field(30, description="a whole number: how long a request may take")

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) < 1 << 16:
            raise ParameterError(f"listen must be an address and a port, such as 127.0.0.1:8443. Got {self.listen!r}.")
        return host.strip("[]"), int(port)

    @property
    def origin(self) -> str:
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def is_loopback(self) -> bool:
        host = self.address[0]
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def provider(self) -> Provider | None:
        """Return the provider of accounts; what it takes is there as a whole, or not at all."""
        from dunnage.serving.signin import Provider

        if self.oidc_issuer is None and self.oidc_client is None and self.oidc_secret_file is None:
            return None
        if not self.oidc_issuer or not self.oidc_client:
            raise ParameterError("accounts need both oidc_issuer and oidc_client.")
        secret = ""
        if self.oidc_secret_file is not None:
            try:
                secret = Path(self.oidc_secret_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError):
                raise InputError(self.oidc_secret_file, ["cannot be read. Name a file with the secret."]) from None
        return Provider(self.oidc_issuer, self.oidc_client, secret)

    def check_exposure(self, has_people: bool) -> None:
        """Refuse to be reached from other machines unless both channel and people are checked."""
        if self.is_loopback:
            return
        missing = []
        if not self.tls_in_front:
            missing.append(
                "without TLS anyone on the way reads tokens. Put a proxy in front that ends TLS, and say so "
                "with --tls-in-front"
            )
        if not has_people:
            missing.append("nobody can sign in yet. Invite somebody first: dunnage serve --invite NAME --role operator")
        if missing:
            raise ParameterError(f"{self.listen} can be reached from other machines, but {'; '.join(missing)}.")


def read_settings(flags: Mapping[str, object], config: Path | None) -> Settings:
    """Join what flags, environment and file say; the first of them that names a setting decides."""
    stated: dict[str, object] = {}
    if config is not None:
        try:
            with config.open("rb") as source:
                stated = tomllib.loads(source.read(MAX_BYTES).decode())
        except OSError as error:
            raise InputError(str(config), [f"cannot be read: {error.strerror}. Name a settings file."]) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(str(config), [f"is not TOML: {str(error)[:100]}."]) from None
    for name, field in Settings.model_fields.items():
        text = os.environ.get(PREFIX + name.upper())
        if text is not None:
            if field.annotation is bool:
                stated[name] = text.lower() in ("1", "true", "yes")
            else:
                stated[name] = int(text) if field.annotation is int and text.isdigit() else text
    stated |= {name: value for name, value in flags.items() if value is not None}
    place = str(config) if config is not None else "the settings"
    return check(stated, Settings, place, what="settings of dunnage serve")
