# SPDX-License-Identifier: Apache-2.0
"""Unlinkable tokens: the vectors of RFC 9474, a second implementation, and what a collector can link."""

from __future__ import annotations

import itertools
import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from tests.estimates_help import HOURLY, PLACES, TELEMETRY, refuses, truck_task

from dunnage.collecting.tokens import Issuer, _signed, valid_tokens
from dunnage.devices.allowance import Allowance
from dunnage.devices.client import Client
from dunnage.devices.report import Report
from dunnage.devices.tokens import (
    EXPONENT,
    SALT_BYTES,
    TokenKey,
    Wallet,
    _encoded,
    blind,
    finalize,
    is_signed,
    split_tokens,
    with_token,
)
from dunnage.errors import AllowanceError, ParameterError, Refusal, ReportError

DAY = 20_000
TASK = truck_task(TELEMETRY, PLACES, schedule=replace(HOURLY, slots_per_day=2))
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=SALT_BYTES)


@pytest.fixture
def issuer(tmp_path):
    return Issuer(tmp_path / "keys", TASK)


def filled(issuer, path, device, task=TASK):
    wallet = Wallet(path, task)
    wallet.accept(DAY, issuer.sign(device, DAY, wallet.request(issuer.key(DAY))))
    return wallet


def test_vectors_of_rfc_9474(issuer):
    text = json.loads((Path(__file__).parent / "fixtures" / "rfc9474.json").read_text())
    vector = {name: "".join(lines) for name, lines in text.items() if name != "from"}
    p, q, inverse = (int(vector[name], 16) for name in ("p", "q", "inv"))
    message, salt, blinded_message, answer, signature = (
        bytes.fromhex(vector[name]) for name in ("msg", "salt", "blinded_msg", "blind_sig", "sig")
    )
    blinded = blind(p * q, message, salt, pow(inverse, -1, p * q))
    assert blinded == (blinded_message, inverse)
    private = issuer._private(DAY).private_numbers()
    exponent = pow(EXPONENT, -1, (p - 1) * (q - 1))

    class Numbers:  # the vector's key, as cryptography states keys
        public_numbers = type(private.public_numbers)(EXPONENT, p * q)
        dmp1, dmq1, iqmp = exponent % (p - 1), exponent % (q - 1), pow(q, -1, p)

    Numbers.p, Numbers.q = p, q
    assert _signed(Numbers, int.from_bytes(blinded_message, "big")) == int.from_bytes(answer, "big")
    assert finalize(p * q, message, answer, inverse) == signature
    assert is_signed(p * q, message, signature)


def test_agrees_with_a_second_implementation(issuer):
    key, private = issuer.key(DAY), issuer._private(DAY)
    message = key.message(bytes(range(16)))
    foreign = private.sign(message, PSS, hashes.SHA384())
    assert is_signed(key.modulus, message, foreign)
    short = private.sign(message, padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=20), hashes.SHA384())
    wrong = [short, bytes(256), foreign[:-1], foreign + b"\0", b"\xff" * 256, private.sign(b"", PSS, hashes.SHA384())]
    wrong += [bytes((*foreign[:at], foreign[at] ^ 1, *foreign[at + 1 :])) for at in range(0, 256, 17)]
    assert not any(is_signed(key.modulus, message, bad) for bad in wrong)
    ids = [bytes(range(16))] * (1 + len(wrong))
    assert valid_tokens(key, ids, [foreign, *wrong]) == [True, *(False for _ in wrong)]
    blinded = blind(key.modulus, message, bytes(SALT_BYTES), 12345)
    answer = issuer.sign("truck", DAY, [blinded.message])[0]
    private.public_key().verify(finalize(key.modulus, message, answer, blinded.inverse), message, PSS, hashes.SHA384())
    with refuses(ReportError, "an answer that is no signature"):
        finalize(key.modulus, message, bytes(256), blinded.inverse)


def test_each_device_gets_its_tokens_once(issuer, tmp_path):
    wallet, key = Wallet(tmp_path / "w", TASK), issuer.key(DAY)
    requested = wallet.request(key)
    assert len(requested) == wallet.num_tokens == issuer.num_tokens == 4  # two slots, two purposes
    answered = issuer.sign("a", DAY, requested)
    again = Wallet(tmp_path / "w", TASK)  # the answer was lost, and the device started again
    assert again.request(key) == requested
    assert Issuer(tmp_path / "keys", TASK).sign("a", DAY, requested) == answered
    with refuses(Refusal, "another request of the same day"):
        issuer.sign("a", DAY, Wallet(tmp_path / "other", TASK).request(key))
    for bad in ([], requested * 2, [*requested, b"\1" * 256], [b"\xff" * 256], [bytes(256)], [b"\1" * 255]):
        with refuses(ParameterError, len(bad)):
            issuer.sign("b", DAY, bad)
    with refuses(ReportError, "an answer of the wrong length"):
        again.accept(DAY, answered[:-1])
    with refuses(ReportError, "another answer"):
        again.accept(DAY, issuer.sign("c", DAY, Wallet(tmp_path / "c", TASK).request(key)))
    with refuses(AllowanceError, "not signed yet"):
        again.report_id(DAY, 0)
    again.accept(DAY, answered)
    assert stat.S_IMODE((tmp_path / "w").stat().st_mode) == 0o600
    with refuses(ReportError, "another key of the same day"):
        again.request(Issuer(tmp_path / "second", TASK).key(DAY))
    assert again.request(key) == []  # nothing is left to request
    reopened = Wallet(tmp_path / "w", TASK)
    ids = [reopened.report_id(DAY, at) for at in range(4)]
    assert len(set(ids)) == 4
    signatures = [reopened.signature(DAY, one) for one in ids]
    assert valid_tokens(key, ids, signatures) == [True] * 4
    assert valid_tokens(key, ids[::-1], signatures) == [False] * 4  # a token is for one id
    assert valid_tokens(issuer.key(DAY + 1), ids, signatures) == [False] * 4  # of one day
    assert TokenKey.from_json(key.to_json()) == key
    assert issuer.key(DAY).digest == Issuer(tmp_path / "keys", TASK).key(DAY).digest != issuer.key(DAY + 1).digest
    issuer.forget(DAY + 1)
    assert not (tmp_path / "keys" / "2024-10-04.pem").exists()
    assert issuer.key(DAY) != key  # gone for good
    reopened.forget(DAY + 1)
    with refuses(AllowanceError, "forgotten"):
        Wallet(tmp_path / "w", TASK).report_id(DAY, 0)
    for text in ("", "{}", '{"format":1,"kind":"dunnage token wallet","task":"x","days":{}}', "[" * 9000):
        (tmp_path / "w").write_text(text)
        with refuses(AllowanceError, text[:20]):
            Wallet(tmp_path / "w", TASK)


def test_reports_take_the_ids_of_their_tokens(issuer, tmp_path):
    wallet = Wallet(tmp_path / "w", TASK)
    midnight = DAY * 86_400
    with Allowance.open(tmp_path / "a", TASK, enrol=True, tier="basic", now=midnight, cap="none") as allowance:
        client = Client(TASK, allowance, clock=lambda: midnight, wallet=wallet)
        moment = TASK.schedule.moment(DAY, allowance.slots(DAY)[0])
        with refuses(AllowanceError, "no token"):
            client.reports({}, moment)
        assert allowance.spent_in_all().loss == 0  # refused before anything was spent
        filled(issuer, tmp_path / "w", "a")
        client = Client(TASK, allowance, clock=lambda: midnight, wallet=Wallet(tmp_path / "w", TASK))
        sent = []
        for slot in allowance.slots(DAY):
            sent += client.reports({"places": (104.0, 30.6)}, TASK.schedule.moment(DAY, slot))
    ids = [Report.from_bytes(data, task=TASK).report_id for data in sent]
    wallet = Wallet(tmp_path / "w", TASK)
    assert ids == [wallet.report_id(DAY, at) for at in range(4)]
    body = b"".join(with_token(data, wallet.signature(DAY, one)) for data, one in zip(sent, ids, strict=True))
    reports, signatures = split_tokens(body, 256)
    assert reports == sent
    assert all(valid_tokens(issuer.key(DAY), ids, signatures))
    for cut in (1, 300, len(body) - 1):
        with refuses(ParameterError, cut):
            split_tokens(body[:cut], 256)
    with refuses(AllowanceError, "an id without a token"):
        wallet.signature(DAY, bytes(16))


def test_what_the_collector_saw_fits_every_device(issuer, tmp_path):
    """Two devices, their requests and their tokens: each request explains each token, with a factor of its own."""
    key, private = issuer.key(DAY), issuer._private(DAY).private_numbers()
    wallets = [filled(issuer, tmp_path / name, name) for name in "ab"]
    ids = [wallet.report_id(DAY, at) for wallet in wallets for at in range(4)]
    requests = [Wallet(tmp_path / f"{name}2", TASK).request(key) for name in "ab"]  # any requests at all do
    for report_id, request in itertools.product(ids[::3], requests[0] + requests[1]):
        wallet = wallets[ids.index(report_id) // 4]
        message, signature = key.message(report_id), wallet.signature(DAY, report_id)
        encoded = pow(int.from_bytes(signature, "big"), EXPONENT, key.modulus)
        salt_of = _salt(encoded, key.modulus)
        factor = _signed(private, int.from_bytes(request, "big") * pow(encoded, -1, key.modulus) % key.modulus)
        assert blind(key.modulus, message, salt_of, factor).message == request
    stored = b"".join(path.read_bytes() for path in (tmp_path / "keys").iterdir())
    for wallet, report_id in zip([wallets[0]] * 4 + [wallets[1]] * 4, ids, strict=True):
        assert report_id not in stored
        assert report_id.hex().encode() not in stored
        assert wallet.signature(DAY, report_id) not in stored
    issuer.erase("a")
    with refuses(Refusal, "b stays on the list"):
        issuer.sign("b", DAY, requests[0])


def _salt(encoded, modulus):
    from dunnage.devices.tokens import _masked

    data = encoded.to_bytes(256, "big")
    salt = _masked(data[:-49], data[-49:-1])[-SALT_BYTES:]
    assert len(_encoded(b"", salt, modulus.bit_length() - 1)) == len(data)
    return salt
