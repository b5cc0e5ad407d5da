# SPDX-License-Identifier: Apache-2.0
"""Sign-in without tokens: passkeys (WebAuthn) and an organisation's own accounts (OpenID Connect).

Both only say who somebody is. Who may do what is decided by the invitation: a person signs in with its token once, and
adds a passkey or an account on the page *Your sign-in*. Roles that a provider names mean nothing here.

A provider is asked by authorisation code with PKCE; state, nonce and challenge are used once, within ten minutes, by
the browser that they were made for. Nothing but the provider that the settings name is ever contacted.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.responses import JSONResponse, Response

from dunnage.errors import ParameterError
from dunnage.serving.studio import Routes, Visit
from dunnage.serving.web import (
    ANYONE,
    COOKIE,
    HEADERS,
    LOCAL,
    STUDIO,
    HttpError,
    checked_name,
    hashed,
    log,
    same_origin,
)

TABLES = """
CREATE TABLE IF NOT EXISTS passkeys (id BYTES PRIMARY KEY, person BYTES NOT NULL, public BYTES NOT NULL,
    uses INTEGER NOT NULL, label TEXT NOT NULL, at INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS accounts (issuer TEXT NOT NULL, subject TEXT NOT NULL, person BYTES NOT NULL,
    at INTEGER NOT NULL, PRIMARY KEY (issuer, subject));
"""
TRY_COOKIE, TRY_SECONDS, MAX_TRIES = "dunnage_sign_in", 600, 10_000
CLOCK_SECONDS, METADATA_SECONDS, MAX_ANSWER, ANSWER_SECONDS = 60, 3600, 1 << 20, 10
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_BACK = "/studio/sign-in/account/back"
_REFUSED = "The account could not be checked. Sign in again."


@dataclass(frozen=True)
class Provider:
    """An OpenID Connect provider, as the settings name it."""

    issuer: str
    client: str
    secret: str = field(default="", repr=False)


class _Try(NamedTuple):
    """A sign-in that has begun in one browser."""

    kind: str
    secret: bytes  # the challenge, or nonce and verifier
    person: bytes | None  # who adds something; None: whoever signs in
    expires: float


class SignIn:
    def __init__(self, site: str, provider: Provider | None) -> None:
        self.site, self.provider = site.rstrip("/"), provider
        self._tries: dict[bytes, _Try] = {}
        self._lock, self._read_at = threading.Lock(), 0.0
        self._metadata: Any = {}  # what the provider says about itself
        self._keys: Any = {}
        if provider is not None:
            _checked_address(provider.issuer, provider.issuer)

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.site).hostname or ""

    def begin(self, kind: str, secret: bytes, person: bytes | None) -> str:
        """Remember a try; return what its browser must bring back."""
        token, now = secrets.token_urlsafe(32), time.time()
        with self._lock:
            if len(self._tries) >= MAX_TRIES:
                self._tries = {key: one for key, one in self._tries.items() if one.expires > now}
            if len(self._tries) >= MAX_TRIES:
                raise HttpError(503, "busy", "Too many people sign in at once. Try again in a few minutes.")
            self._tries[hashed(token)] = _Try(kind, secret, person, now + TRY_SECONDS)
        return token

    def take(self, kind: str, token: str) -> _Try:
        """Return a try, once."""
        with self._lock:
            made = self._tries.pop(hashed(token), None) if token else None
        if made is None or made.kind != kind or made.expires <= time.time():
            raise HttpError(409, "try", "This was not begun in this browser, took too long or was used. Begin again.")
        return made

    # --- the provider ------------------------------------------------------------------------------------------------

    def about(self) -> Any:
        """Return what the provider says about itself."""
        assert self.provider is not None
        with self._lock:
            if time.time() - self._read_at > METADATA_SECONDS:
                issuer = self.provider.issuer
                metadata = _fetched(issuer.rstrip("/") + "/.well-known/openid-configuration")
                if metadata.get("issuer") != issuer:
                    raise HttpError(502, "provider", "The provider does not have the name that the settings give it.")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    _checked_address(str(metadata.get(name, "")), issuer)
                self._metadata, self._keys = metadata, _fetched(metadata["jwks_uri"])
                self._read_at = time.time()
            return self._metadata

    def address(self, person: bytes | None) -> tuple[str, str]:
        """Return where to send a browser, and what it must bring back."""
        about, provider = self.about(), self.provider
        assert provider is not None
        nonce, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        token = self.begin("account", f"{nonce} {verifier}".encode(), person)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code", "scope": "openid", "client_id": provider.client, "nonce": nonce, "state": token,
            "redirect_uri": self.site + _BACK, "code_challenge_method": "S256",
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        }  # fmt: skip
        joint = "&" if "?" in about["authorization_endpoint"] else "?"
        return about["authorization_endpoint"] + joint + urllib.parse.urlencode(query), token

    def subject(self, made: _Try, code: str) -> str:
        """Exchange a code for an id token, and return whom it names, if it is meant for us and for this try."""
        about, provider = self.about(), self.provider
        assert provider is not None
        nonce, verifier = made.secret.decode().split(" ")
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.site + _BACK,
                "client_id": provider.client, "code_verifier": verifier}  # fmt: skip
        answer = _fetched(about["token_endpoint"], form, provider)
        return self._named(str(answer.get("id_token", "")), nonce)

    def _named(self, token: str, nonce: str) -> str:
        assert self.provider is not None
        client, jwt, jwk = self.provider.client, _needed("joserfc.jwt"), _needed("joserfc.jwk")
        wrong = _needed("joserfc.errors").JoseError
        try:
            try:
                read = jwt.decode(token, jwk.KeySet.import_key_set(self._keys), algorithms=ALGORITHMS)
            except (wrong, ValueError):  # the provider may have new keys
                self._keys = _fetched(self._metadata["jwks_uri"])
                read = jwt.decode(token, jwk.KeySet.import_key_set(self._keys), algorithms=ALGORITHMS)
            wanted: Any = {
                "iss": {"essential": True, "value": self.provider.issuer}, "aud": {"essential": True, "value": client},
                "nonce": {"essential": True, "value": nonce}, "exp": {"essential": True}, "iat": {"essential": True},
                "sub": {"essential": True},
            }  # fmt: skip
            jwt.JWTClaimsRegistry(leeway=CLOCK_SECONDS, **wanted).validate(read.claims)
            parties = {read.claims["aud"]} if isinstance(read.claims["aud"], str) else set(read.claims["aud"])
            own = parties == {client} and read.claims.get("azp", client) == client  # several could be in league
            subject = read.claims["sub"]
            if not own or not isinstance(subject, str) or not 0 < len(subject) <= 255 or "\0" in subject:
                raise ValueError
        except (wrong, ValueError, TypeError, KeyError) as error:
            log("sign-in", refused=type(error).__name__)
            raise HttpError(403, "account", _REFUSED) from None
        return str(subject)


def _needed(name: str) -> Any:
    """Load a package that an installation of an earlier version may lack."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise HttpError(404, "extra", "This sign-in needs more packages. Install dunnage[serve] again.") from None


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: the provider has one address for each question."""


_OPENER = urllib.request.build_opener(_Stay)


def _checked_address(url: str, issuer: str) -> None:
    """Refuse addresses without TLS, except on this machine for a provider on this machine."""
    parts, own = urllib.parse.urlsplit(url), urllib.parse.urlsplit(issuer)
    loopback = {"127.0.0.1", "localhost", "::1"}
    local = parts.scheme == "http" and parts.hostname in loopback and own.hostname in loopback
    if not parts.hostname or not (parts.scheme == "https" or local):
        raise ParameterError("the addresses of an OpenID Connect provider must begin with https://.")


def _fetched(url: str, form: dict[str, str] | None = None, provider: Provider | None = None) -> Any:
    """Ask the provider; its words are never shown."""
    headers = {"accept": "application/json"}
    if provider is not None and provider.secret:
        pair = f"{urllib.parse.quote(provider.client, safe='')}:{urllib.parse.quote(provider.secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    body = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        with _OPENER.open(urllib.request.Request(url, body, headers), timeout=ANSWER_SECONDS) as answer:
            content = json.loads(answer.read(MAX_ANSWER))
        if not isinstance(content, dict):
            raise ValueError
    except urllib.error.HTTPError as error:
        error.close()
        raise HttpError(403 if form else 502, "account", _REFUSED) from None
    except (OSError, ValueError):
        raise HttpError(502, "provider", "The provider does not answer. Try again, or use your token.") from None
    return content


# --- pages -------------------------------------------------------------------------------------------------------


def _with_cookie(visit: Visit, response: Response, token: str) -> Response:
    secure = visit.studio.signing.site.startswith("https://")
    response.set_cookie(
        TRY_COOKIE, token, max_age=TRY_SECONDS, httponly=True, samesite="lax", secure=secure, path="/studio"
    )
    return response


def _tried(visit: Visit) -> str:
    return visit.request.cookies.get(TRY_COOKIE, "")


def _ours(visit: Visit) -> None:
    if not same_origin(visit.request):
        raise HttpError(403, "cross_site", "This did not come from a page of the studio.")


def _key(visit: Visit) -> bytes:
    """Return who asks, among the people of a team."""
    known = visit.studio.door.known(visit.request, changes=True)
    if known is None or known[0] == LOCAL:
        raise HttpError(404, "no_team", "On your own machine, the link signs you in. Passkeys are for a team.")
    return known[0]


def _enter(visit: Visit, key: bytes) -> Response:
    if key not in visit.studio.door.people:
        raise HttpError(403, "person", "You are no longer among the people of this studio.")
    response = visit.studio.door.begin(key, visit.go("/studio"), visit.request.cookies.get(COOKIE))
    response.delete_cookie(TRY_COOKIE, path="/studio")
    return response


def _me(visit: Visit) -> Response:
    key, book = _key(visit), visit.studio.book
    passkeys = book.rows("SELECT id, label, at FROM passkeys WHERE person = ? ORDER BY at", key)
    accounts = book.rows("SELECT issuer, at FROM accounts WHERE person = ? ORDER BY at", key)
    return visit.page(
        "me", title="Your sign-in", passkeys=[(bytes(one).hex(), label, at) for one, label, at in passkeys],
        accounts=accounts, provider=visit.studio.signing.provider,
    )  # fmt: skip


def _forget(visit: Visit) -> Response:
    """Forget a passkey, or the accounts at the provider, of the person who asks."""
    key, which = _key(visit), visit.form.get("passkey", "")
    if which:
        if len(which) % 2 or not set(which) <= set("0123456789abcdef"):
            raise HttpError(404, "no_passkey", "There is no such passkey.")
        visit.studio.book.write("DELETE FROM passkeys WHERE id = ? AND person = ?", bytes.fromhex(which), key)
    else:
        visit.studio.book.write("DELETE FROM accounts WHERE person = ?", key)
    return visit.go("/studio/me")


def _passkey_options(visit: Visit) -> Response:
    """Ask a browser for a new passkey of the person who asks."""
    webauthn, structs = _needed("webauthn"), _needed("webauthn.helpers.structs")
    key, signing = _key(visit), visit.studio.signing
    challenge = secrets.token_bytes(32)
    had = visit.studio.book.rows("SELECT id FROM passkeys WHERE person = ?", key)
    options = webauthn.generate_registration_options(
        rp_id=signing.host, rp_name="Dunnage studio", user_name=visit.person.name, user_id=hashed(key.hex()),
        challenge=challenge,
        exclude_credentials=[structs.PublicKeyCredentialDescriptor(id=bytes(one)) for (one,) in had],
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.REQUIRED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
    )  # fmt: skip
    answer = JSONResponse(json.loads(webauthn.options_to_json(options)), headers=HEADERS)
    return _with_cookie(visit, answer, signing.begin("new passkey", challenge, key))


def _add_passkey(visit: Visit) -> Response:
    webauthn, wrong = _needed("webauthn"), _needed("webauthn.helpers.exceptions").WebAuthnException
    key, signing = _key(visit), visit.studio.signing
    made = signing.take("new passkey", _tried(visit))
    if made.person != key:
        raise HttpError(403, "try", "This passkey was begun by somebody else. Begin again.")
    try:
        new = webauthn.verify_registration_response(
            credential=visit.form.get("credential", ""), expected_challenge=made.secret, expected_rp_id=signing.host,
            expected_origin=signing.site, require_user_verification=True,
        )  # fmt: skip
    except (wrong, ValueError):
        raise HttpError(422, "passkey", "The passkey could not be checked. Begin again.") from None
    label = checked_name(visit.form.get("label", "").strip() or "Passkey")
    line = new.credential_id, key, new.credential_public_key, new.sign_count, label, int(time.time())
    sql = "INSERT INTO passkeys VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    if not visit.studio.book.write(sql, *line):
        raise HttpError(409, "passkey", "This passkey is there already.")
    log("sign-in", what="passkey added")
    return visit.go("/studio/me")


def _challenge(visit: Visit) -> Response:
    """Ask a browser for a passkey of whoever wants to sign in."""
    webauthn, structs = _needed("webauthn"), _needed("webauthn.helpers.structs")
    _ours(visit)
    signing, challenge = visit.studio.signing, secrets.token_bytes(32)
    options = webauthn.generate_authentication_options(
        rp_id=signing.host, challenge=challenge, user_verification=structs.UserVerificationRequirement.REQUIRED
    )
    answer = JSONResponse(json.loads(webauthn.options_to_json(options)), headers=HEADERS)
    return _with_cookie(visit, answer, signing.begin("passkey", challenge, None))


def _by_passkey(visit: Visit) -> Response:
    webauthn, wrong = _needed("webauthn"), _needed("webauthn.helpers.exceptions").WebAuthnException
    _ours(visit)
    signing, book = visit.studio.signing, visit.studio.book
    made = signing.take("passkey", _tried(visit))
    unknown = HttpError(403, "passkey", "This passkey is not known here. Use another, or your token.")
    try:
        credential = json.loads(visit.form.get("credential", ""))
        which = webauthn.base64url_to_bytes(str(credential["id"]))
        rows = book.rows("SELECT person, public, uses FROM passkeys WHERE id = ?", which)
        if not rows:
            raise unknown
        person, public, uses = rows[0]
        proof = webauthn.verify_authentication_response(
            credential=credential, expected_challenge=made.secret, expected_rp_id=signing.host,
            expected_origin=signing.site, credential_public_key=bytes(public), credential_current_sign_count=uses,
            require_user_verification=True,
        )  # fmt: skip
    except (wrong, ValueError, TypeError, KeyError):
        raise unknown from None
    book.write("UPDATE passkeys SET uses = ? WHERE id = ?", proof.new_sign_count, which)
    return _enter(visit, bytes(person))


def _provider(visit: Visit) -> SignIn:
    if visit.studio.signing.provider is None:
        raise HttpError(404, "no_provider", "This studio has no provider of accounts.")
    return visit.studio.signing


def _to_provider(visit: Visit) -> Response:
    """Send a browser to the provider: to sign in."""
    address, token = _provider(visit).address(None)
    return _with_cookie(visit, visit.go(address), token)


def _to_link(visit: Visit) -> Response:
    """Send a browser to the provider: to add an account to the person who asks, from a page of ours."""
    signing, key = _provider(visit), _key(visit)
    _ours(visit)
    address, token = signing.address(key)
    return _with_cookie(visit, visit.go(address), token)


def _back(visit: Visit) -> Response:
    """Take in what the provider's page sent along: it counts once, and only in the browser that began."""
    signing, said = _provider(visit), visit.request.query_params
    state = said.get("state", "")
    if not state or not secrets.compare_digest(state.encode(), _tried(visit).encode()):
        raise HttpError(403, "try", "This sign-in did not begin in this browser. Begin again.")
    made = signing.take("account", state)
    assert signing.provider is not None
    issuer = signing.provider.issuer
    if said.get("iss", issuer) != issuer or not said.get("code"):
        raise HttpError(403, "account", _REFUSED)
    subject, book = signing.subject(made, said["code"]), visit.studio.book
    if made.person is not None:
        if made.person != _key(visit):
            raise HttpError(403, "try", "Somebody else signed in meanwhile. Begin again.")
        line = issuer, subject, made.person, int(time.time())
        sql = "INSERT INTO accounts VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        if not book.write(sql, *line):
            raise HttpError(409, "account", "This account belongs to somebody already.")
        log("sign-in", what="account added")
        return visit.go("/studio/me")
    rows = book.rows("SELECT person FROM accounts WHERE issuer = ? AND subject = ?", issuer, subject)
    if not rows:
        raise HttpError(403, "person", "Nobody here has this account. Sign in with your token, and add it.")
    return _enter(visit, bytes(rows[0][0]))


ROUTES: Routes = {
    "GET /studio/me": (STUDIO, _me),
    "POST /studio/me/forget": (STUDIO, _forget),
    "POST /studio/me/passkey/options": (STUDIO, _passkey_options),
    "POST /studio/me/passkey": (STUDIO, _add_passkey),
    "GET /studio/me/account": (STUDIO, _to_link),
    "POST /studio/sign-in/passkey/options": ((ANYONE,), _challenge),
    "POST /studio/sign-in/passkey": ((ANYONE,), _by_passkey),
    "GET /studio/sign-in/account": ((ANYONE,), _to_provider),
    f"GET {_BACK}": ((ANYONE,), _back),
}
NAV: list[tuple[str, str]] = []
