# SPDX-License-Identifier: Apache-2.0
"""Sign-in by passkeys and by accounts of a provider, and what somebody who lies gets: nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("starlette")
jwt = pytest.importorskip("joserfc.jwt")
pytest.importorskip("webauthn")
from joserfc.jwk import OctKey, RSAKey  # noqa: E402
from tests.studio_help import Answer, Here  # noqa: E402
from tests.test_studio import database  # noqa: E402, F401
from tests.test_studio_people import team  # noqa: E402, F401

from dunnage.errors import ParameterError  # noqa: E402
from dunnage.serving import signin  # noqa: E402
from dunnage.serving.settings import Settings  # noqa: E402
from dunnage.serving.signin import TRY_COOKIE, Provider, SignIn  # noqa: E402
from dunnage.serving.web import COOKIE, PLANNER  # noqa: E402

OURS = {"sec-fetch-site": "same-origin"}
CLIENT, SECRET = "studio", "s/e cret"
KEYS = [RSAKey.generate_key(2048, parameters={"kid": "one", "use": "sig"}) for _ in range(2)]


class Login:
    """An OpenID Connect provider on this machine, with codes that work once and PKCE."""

    def __init__(self) -> None:
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: Callable[[dict[str, Any]], Any] = lambda claims: claims
        self.sign: Callable[[dict[str, Any]], str] = lambda claims: jwt.encode(
            {"alg": "RS256", "kid": "one"}, claims, KEYS[0]
        )
        self.asked = 0
        own = self

        class Pages(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(
                    200, own.about() if "well-known" in self.path else {"keys": [KEYS[0].as_dict(private=False)]}
                )

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                self.answer(*own.token({name: one[0] for name, one in form.items()}, self.headers["authorization"]))

            def answer(self, status: int, content: Any) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def about(self) -> dict[str, str]:
        ends = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        return {"issuer": self.issuer} | {name: self.issuer + path for name, path in ends.items()}

    def grant(self, address: str) -> str:
        """Let the person who opened the page of this address in; return the code."""
        asked = {name: one[0] for name, one in parse_qs(urlsplit(address).query).items()}
        assert asked["redirect_uri"] == "http://localhost:8400/studio/sign-in/account/back"
        code = f"code{len(self.codes)}"
        self.codes[code] = asked
        return code

    def token(self, form: dict[str, str], head: str) -> tuple[int, Any]:
        self.asked += 1
        begun = self.codes.pop(form["code"], None)
        known = base64.b64encode(f"{CLIENT}:s%2Fe%20cret".encode()).decode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if begun is None or head != f"Basic {known}" or begun["code_challenge"] != digest:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "ann-7", "nonce": begun["nonce"], "iat": now,
                  "exp": now + 60, "roles": ["owner", "admin"], "name": "admin"}  # fmt: skip
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": self.sign(self.claims(claims))}


@pytest.fixture
def login() -> Iterator[Login]:
    made = Login()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


@pytest.fixture
def here(tmp_path: Path, login: Login, database: str) -> Iterator[Here]:  # noqa: F811
    made = Here(tmp_path / "studio", database=database)
    made.studio.signing.provider = Provider(login.issuer, CLIENT, SECRET)
    yield made
    made.close()


def cookie_of(answer: Answer, name: str) -> str:
    found = re.search(rf"{name}=([^;]*)", answer.headers.get("set-cookie", ""))
    return found[1] if found else ""


def session_of(here: Here, role: str) -> str:
    return cookie_of(
        here.call("POST", "/studio/sign-in", {"token": here.tokens[role]}, role=None, headers=OURS), COOKIE
    )


def with_cookies(here: Here, path: str, form: dict[str, str] | None = None, **cookies: str) -> Answer:
    said = "; ".join(f"{name}={text}" for name, text in cookies.items())
    return here.call("GET" if form is None else "POST", path, form, role=None, headers={"cookie": said, **OURS})


def walk(here: Here, login: Login, path: str = "/studio/sign-in/account", **cookies: str) -> tuple[str, str]:
    """Go to the provider and be let in; return the address to come back to, and the cookie of the try."""
    answer = with_cookies(here, path, **cookies)
    assert answer.status == 303, answer.text[-500:]
    assert "httponly" in answer.headers["set-cookie"].lower()
    state = parse_qs(urlsplit(answer.place).query)["state"][0]
    return f"/studio/sign-in/account/back?code={login.grant(answer.place)}&state={state}", cookie_of(answer, TRY_COOKIE)


def test_an_account_is_added_and_signs_in_with_the_roles_of_the_invitation(here: Here, login: Login) -> None:
    unknown, tried = walk(here, login)
    answer = with_cookies(here, unknown, **{TRY_COOKIE: tried})
    assert (answer.status, "Nobody here has this account" in answer.text) == (403, True)
    session = session_of(here, PLANNER)
    back, tried = walk(here, login, "/studio/me/account", **{COOKIE: session})
    other = session_of(here, "owner")
    assert with_cookies(here, back, **{TRY_COOKIE: tried, COOKIE: other}).status == 403  # who adds it is who began
    back, tried = walk(here, login, "/studio/me/account", **{COOKIE: session})
    assert with_cookies(here, back, **{TRY_COOKIE: tried, COOKIE: session}).place == "/studio/me"
    assert login.issuer in with_cookies(here, "/studio/me", **{COOKIE: session}).text
    back, tried = walk(here, login)
    entered = with_cookies(here, back, **{TRY_COOKIE: tried})
    assert (entered.status, entered.place) == (303, "/studio")
    new = cookie_of(entered, COOKIE)
    assert with_cookies(here, "/studio", **{COOKIE: new}).status == 200
    assert with_cookies(here, "/studio/people", **{COOKIE: new}).status == 403  # whatever roles the token names
    asked = login.asked
    assert with_cookies(here, back, **{TRY_COOKIE: tried}).status == 409  # a second time
    assert login.asked == asked
    back, tried = walk(here, login, "/studio/me/account", **{COOKIE: other})
    assert with_cookies(here, back, **{TRY_COOKIE: tried, COOKIE: other}).status == 409  # it has its person
    assert with_cookies(here, "/studio/me/forget", {}, **{COOKIE: session}).status == 303
    back, tried = walk(here, login)
    assert with_cookies(here, back, **{TRY_COOKIE: tried}).status == 403


def _none(claims: dict[str, Any]) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


FORGED: dict[str, Callable[[dict[str, Any]], str]] = {
    "nothing": lambda claims: "",
    "no token": lambda claims: "a.b.c",
    "not signed": _none,
    "another key": lambda claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEYS[1]),
    "a secret in place of a key": lambda claims: jwt.encode(
        {"alg": "HS256", "kid": "one"}, claims, OctKey.import_key(SECRET * 4)
    ),
    "changed": lambda claims: _changed(jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEYS[0])),
}
CHANGES: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "guessed"}, "no nonce": {"nonce": None}, "another audience": {"aud": "other"},
    "two audiences": {"aud": [CLIENT, "other"]}, "another party": {"azp": "other"}, "no audience": {"aud": None},
    "another issuer": {"iss": "https://evil.example"}, "expired": {"exp": int(time.time()) - 3600},
    "never expires": {"exp": None}, "of tomorrow": {"nbf": int(time.time()) + 86_400}, "nobody": {"sub": None},
    "a number": {"sub": 7}, "empty": {"sub": ""},
}  # fmt: skip


def _changed(token: str) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims["sub"] = "somebody-else"
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.{signature}"


@pytest.mark.parametrize("database", [""])
def test_forged_tokens_and_borrowed_tries_are_refused(here: Here, login: Login, monkeypatch: Any) -> None:
    session = session_of(here, PLANNER)
    back, tried = walk(here, login, "/studio/me/account", **{COOKIE: session})
    assert with_cookies(here, back, **{TRY_COOKIE: tried, COOKIE: session}).place == "/studio/me"
    honest = login.sign
    for what, sign in FORGED.items():
        login.sign = sign
        back, tried = walk(here, login)
        answer = with_cookies(here, back, **{TRY_COOKIE: tried})
        assert (answer.status, cookie_of(answer, COOKIE)) == (403, ""), what
    login.sign = honest
    for what, change in CHANGES.items():
        login.claims = lambda claims, change=change: {  # type: ignore[misc]
            name: value for name, value in {**claims, **change}.items() if value is not None
        }
        back, tried = walk(here, login)
        answer = with_cookies(here, back, **{TRY_COOKIE: tried})
        assert (answer.status, cookie_of(answer, COOKIE)) == (403, ""), what
    login.claims = lambda claims: claims
    back, tried = walk(here, login)
    other, other_tried = walk(here, login)
    tries = [
        (back, {}), (back, {TRY_COOKIE: other_tried}), (back.replace("state=", "state=x"), {TRY_COOKIE: tried}),
        (back.partition("&state")[0], {TRY_COOKIE: tried}), (back + "&iss=https://evil.example", {TRY_COOKIE: tried}),
        (other.replace("code=code", "code=guess"), {TRY_COOKIE: other_tried}),
        ("/studio/sign-in/account/back?error=access_denied", {TRY_COOKIE: tried}),
    ]  # fmt: skip
    for path, cookies in tries:
        answer = with_cookies(here, path, **cookies)
        assert (answer.status, cookie_of(answer, COOKIE)) == (403, ""), path
    monkeypatch.setattr(signin, "TRY_SECONDS", -1)
    back, tried = walk(here, login)
    assert with_cookies(here, back, **{TRY_COOKIE: tried}).status == 409  # too late
    evil = {"cookie": f"{COOKIE}={session}", "sec-fetch-site": "cross-site"}
    assert here.call("GET", "/studio/me/account", role=None, headers=evil).status == 403
    assert here.call("POST", "/studio/me/forget", {}, role=None, headers=evil).status == 403


def test_settings_of_accounts_are_whole_and_safe(tmp_path: Path) -> None:
    assert Settings().provider() is None
    (tmp_path / "secret").write_text("abc\n")
    whole = Settings(oidc_issuer="https://a.example", oidc_client="c", oidc_secret_file=str(tmp_path / "secret"))
    provider = whole.provider()
    assert provider is not None
    assert provider.secret == "abc"
    assert "abc" not in repr(provider)
    with pytest.raises(ParameterError, match="oidc_client"):
        Settings(oidc_issuer="https://a.example").provider()
    for issuer in ("http://a.example", "ftp://a.example", "a.example"):
        with pytest.raises(ParameterError, match="https"):
            SignIn("http://localhost:1", Provider(issuer, "c"))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_passkey_is_added_and_signs_in_once_for_each_challenge(team: Any) -> None:  # noqa: F811
    from tests.browser_help import chromium

    site = f"http://localhost:{team.port}"
    team.studio.signing.site = site
    with chromium() as browser:
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(120_000)
        devtools = context.new_cdp_session(page)
        devtools.send("WebAuthn.enable")
        how = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
               "isUserVerified": True, "automaticPresenceSimulation": True}  # fmt: skip
        device = devtools.send("WebAuthn.addVirtualAuthenticator", {"options": how})["authenticatorId"]
        page.goto(f"{site}/studio/sign-in")
        page.fill("#token", team.here.tokens[PLANNER])
        page.click("button:text-is('Sign in')")
        page.click("a:text-is('planner')")
        page.fill("#label", "Laptop")
        page.click("text=Add a passkey")
        page.wait_for_selector("li:has-text('Laptop')")
        page.click("text=Sign out")
        sent = []
        page.on("request", lambda made: sent.append(made) if made.url.endswith("/sign-in/passkey") else None)
        page.click("text=Sign in with a passkey")
        page.wait_for_selector("h1:text-is('Projects')")
        assert "planner" in page.inner_text(".top")
        form = {"credential": parse_qs(sent[0].post_data)["credential"][0]}
        headers = {"sec-fetch-site": "same-origin"}
        again = context.request.post(f"{site}/studio/sign-in/passkey", form=form, headers=headers)
        assert again.status == 409  # what was said once is worth nothing
        context.request.post(f"{site}/studio/sign-in/passkey/options", form={}, headers=headers)
        again = context.request.post(f"{site}/studio/sign-in/passkey", form=form, headers=headers)
        assert again.status == 403  # nor to another challenge
        page.click("a:text-is('planner')")
        page.click("text=Forget")
        page.wait_for_selector("text=You have no passkey here yet")
        page.click("text=Sign out")
        page.click("text=Sign in with a passkey")
        page.wait_for_selector("text=not known here")
        devtools.send("WebAuthn.setUserVerified", {"authenticatorId": device, "isUserVerified": False})
        page.goto(f"{site}/studio/sign-in")
        page.click("text=Sign in with a passkey")
        page.wait_for_selector("text=No passkey was used")
        context.close()
