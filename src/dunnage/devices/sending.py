# SPDX-License-Identifier: Apache-2.0
"""Sending: a device sends the reports that its allowance holds to a collector.

Sending never makes a report, so nothing is spent and nothing is sampled: it only hands out stored bytes, any number of
times. A collector counts each report once. What it has acknowledged is noted in ``<allowance>.sent``, so that it is not
sent again; without that file everything is sent again, which costs nothing but bytes. The token is in
``<allowance>.token``, readable by the device alone.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from dunnage.devices.allowance import Allowance
from dunnage.devices.report import Report, day_text, packed, unpacked
from dunnage.devices.task import Task
from dunnage.devices.tokens import TokenKey, Wallet, with_token
from dunnage.errors import AllowanceError, ParameterError, TaskError
from dunnage.folders import new_file
from dunnage.noise.source import Noise

CONTENT_TYPE = "application/vnd.dunnage.reports"
CONTENT_TYPE_WITH_TOKENS = "application/vnd.dunnage.reports-with-tokens"
MAX_REPORTS = 1_000  # of one request
TRIES = 6
FIRST_WAIT = 2.0  # seconds until the second try; each further wait is twice as long
MAX_WAIT = 120.0
MAX_ANSWER = 1 << 22
TIMEOUT = 30.0
FINAL = (
    "late",
    "closed",
    "wrong_task",
    "malformed",
    "too_many",
    "no_token",
)  # answers that sending again does not change
_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass
class Sent:
    num_sent: int = 0  # reports that the collector stored now
    num_known: int = 0  # that it had before
    refused: dict[str, int] = field(default_factory=dict)  # that it did not take, by code
    num_waiting: int = 0  # that could not be sent

    def to_dict(self) -> dict[str, object]:
        return {
            "sent": self.num_sent,
            "known": self.num_known,
            "refused": self.refused,
            "waiting": self.num_waiting,
        }


class Collector:
    """The collector of a task, as a device sees it."""

    def __init__(
        self, address: str, task: Task, *, wait: Callable[[float], None] = time.sleep, noise: Noise | None = None
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise ParameterError("the address of a collector begins with https:// and names a host.")
        if parts.scheme == "http" and parts.hostname not in _HOSTS:
            raise ParameterError("without TLS anyone on the way reads the token. Use https://, except on this machine.")
        self.task, self._parts, self._wait, self._noise = task, parts, wait, noise or Noise()
        self._base = f"{parts.path.rstrip('/')}/v1/tasks/{task.digest}"

    def request(self, method: str, path: str, body: bytes, kind: str, token: str = "") -> tuple[int, Any, float]:
        """Make one request; return its status, its answer, and how long the collector asks to wait."""
        port, host = self._parts.port, str(self._parts.hostname)
        if self._parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            headers = {"content-type": kind} | ({"authorization": f"Bearer {token}"} if token else {})
            connection.request(method, self._base + path, body or None, headers)
            response = connection.getresponse()
            content = response.read(MAX_ANSWER)
            after = response.getheader("retry-after", "")
            try:
                answer = json.loads(content)
            except (ValueError, RecursionError):
                answer = None
            return response.status, answer, float(after) if after.isdigit() else 0.0
        finally:
            connection.close()

    def patiently(self, method: str, path: str, body: bytes, kind: str, token: str = "") -> tuple[int, Any]:
        """Try several times, after longer and longer waits; status 0 if the collector cannot be reached."""
        status, answer, least, pause = 0, None, 0.0, FIRST_WAIT
        for number in range(TRIES):
            if number:
                # Half of the wait is random, so that vehicles that lost the collector together do not return together.
                share = (1 + self._noise.below(1 << 16) / (1 << 16)) / 2
                self._wait(min(MAX_WAIT, max(pause * share, least)))
                pause *= 2
            try:
                status, answer, least = self.request(method, path, body, kind, token)
            except (OSError, http.client.HTTPException):
                status, answer = 0, None
                continue
            if status not in (408, 429) and status < 500:
                break
        return status, answer

    def enrol(self, code: str) -> str:
        """Exchange a one-time code for a token."""
        body = json.dumps({"code": code}).encode()
        status, answer = self.patiently("POST", "/enrol", body, "application/json")
        token = answer.get("token") if isinstance(answer, dict) else None
        if status != 201 or not isinstance(token, str):
            raise AllowanceError(f"the collector did not enrol this device: {_reason(status, answer)}")
        return token

    def fetch_tokens(self, wallet: Wallet, day: int, token: str) -> None:
        """Have the report ids of a day signed, in this device's name; tokens that are there are not fetched again."""
        if wallet.has(day):
            return
        path = f"/tokens/{day_text(day)}"
        status, answer = self.patiently("GET", path, b"", "application/json")
        if status != 200:
            raise AllowanceError(f"the collector has no tokens for {day_text(day)}: {_reason(status, answer)}")
        blinded = [packed(one) for one in wallet.request(TokenKey.from_json(json.dumps(answer)))]
        body = json.dumps({"blinded": blinded}).encode()
        status, answer = self.patiently("POST", path, body, "application/json", token)
        signed = answer.get("signed") if isinstance(answer, dict) else None
        if status != 200 or not isinstance(signed, list):
            raise AllowanceError(f"the collector gave no tokens for {day_text(day)}: {_reason(status, answer)}")
        try:
            answers = [unpacked(one) for one in signed]
        except ValueError:
            answers = []  # which the wallet refuses
        wallet.accept(day, answers)

    def send(self, reports: Sequence[bytes], token: str, wallet: Wallet | None = None) -> tuple[Sent, list[bytes]]:
        """Send reports, with a wallet without a name; return what became of them, and which need not be sent again."""
        done, settled = Sent(), list[bytes]()
        for at in range(0, len(reports), MAX_REPORTS):
            part = reports[at : at + MAX_REPORTS]
            if wallet is None:
                body = b"".join(len(one).to_bytes(4, "big") + one for one in part)
                status, answer = self.patiently("POST", "/reports", body, CONTENT_TYPE, token)
            else:
                made = [(one, Report.from_bytes(one)) for one in part]
                body = b"".join(with_token(one, wallet.signature(own.day, own.report_id)) for one, own in made)
                status, answer = self.patiently("POST", "/reports", body, CONTENT_TYPE_WITH_TOKENS)
            if status in (401, 403, 404, 413, 415):
                raise AllowanceError(f"the collector refuses this device: {_reason(status, answer)}")
            if status != 200 or not isinstance(answer, dict):
                done.num_waiting += len(reports) - at
                break
            codes = {str(item.get("id")): str(item.get("code")) for item in answer.get("failures", ())}
            done.num_sent += int(answer.get("accepted", 0))
            for one in part:
                code = codes.get(Report.from_bytes(one).report_id.ljust(16, b"\0").hex(), "")
                done.num_known += code == "replayed"
                if code in FINAL:
                    done.refused[code] = done.refused.get(code, 0) + 1
                elif code not in ("", "replayed"):  # too early: later it may be right
                    done.num_waiting += 1
                    continue
                settled.append(one)
        return done, settled


def _reason(status: int, answer: Any) -> str:
    if not status:
        return "it cannot be reached. Try again later."
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message)[:200] if message else f"status {status}."


def send_stored(
    allowance: Allowance, collector: Collector, *, code: str | None = None, wallet: Wallet | None = None
) -> Sent:
    """Send the stored reports of all days that have not closed, except those that were acknowledged before.

    With a wallet, tokens of these days are fetched first, and reports travel without a name.
    """
    if allowance.task.digest != collector.task.digest:
        raise TaskError("the allowance is open for another task than the collector. Use the same task.")
    place, noted = f"{allowance.path}.token", f"{allowance.path}.sent"
    if code is not None:
        token = collector.enrol(code)
        with new_file(place, private=True) as sink:
            sink.write(token.encode())
    else:
        try:
            with open(place, encoding="ascii") as source:
                token = source.read(200).strip()
        except FileNotFoundError:
            raise AllowanceError(f"there is no token at {place}. Enrol first, with --code from the operator.") from None
        except (OSError, UnicodeDecodeError):
            raise AllowanceError(f"the token at {place} cannot be read. Enrol again, with a new --code.") from None
    known: set[str] = set()
    with suppress(FileNotFoundError, UnicodeDecodeError), open(noted, encoding="ascii") as source:
        known = set(source.read().split())
    stored = [one for day in allowance.open_days for one in allowance.stored_of(day)]
    waiting = [one for one in stored if _digest(one) not in known]
    if wallet is not None:
        wallet.forget(min(allowance.open_days, default=0))
        for day in allowance.open_days:
            if allowance.slots(day):
                collector.fetch_tokens(wallet, day, token)
    done, settled = collector.send(waiting, token, wallet)
    if settled:
        # Only reports that are still stored: the file does not grow.
        kept = [_digest(one) for one in stored if _digest(one) in known or one in settled]
        with new_file(noted, private=True) as sink:
            sink.write("\n".join(kept).encode())
    return done


def _digest(report: bytes) -> str:
    return hashlib.sha256(report).hexdigest()[: 2 * 16]
