"""Who may ask for what: Triton's words over both doors, and keys before them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bident.doors.access import GRPC_PREFIX, Access, Api, Refusal
from bident.settings.values import RestrictedApi

ADMIN = RestrictedApi(frozenset({Api.MODEL_REPOSITORY, Api.SHARED_MEMORY}), "Admin-Key", "s3cret")
TRACING = RestrictedApi(frozenset({Api.TRACE}), "tk", "t")


class OneKey:
    def allows(self, headers: Mapping[bytes, bytes]) -> bool:
        return headers.get(b"x-api-key") == b"k"


@pytest.mark.parametrize("headers", [{}, {b"admin-key": b"S3cret"}, {b"admin-key": b""}, {b"tk": b"t"}])
def test_a_restricted_api_wants_its_header(headers: dict[bytes, bytes]) -> None:
    access = Access([ADMIN, TRACING])
    refusal = Refusal("restricted", "This API is restricted, expecting header 'Admin-Key'")
    assert access.refusal(Api.MODEL_REPOSITORY, headers) == refusal
    assert access.refusal(Api.SHARED_MEMORY, headers) == refusal
    assert access.refusal(Api.INFERENCE, headers) is None


def test_the_right_header_opens_its_group_and_no_other() -> None:
    access = Access([ADMIN, TRACING])
    headers = {b"admin-key": b"s3cret"}
    assert access.refusal(Api.MODEL_REPOSITORY, headers) is None
    assert access.refusal(Api.TRACE, headers) is not None


def test_metadata_has_a_prefix() -> None:
    access = Access([ADMIN], prefix=GRPC_PREFIX)
    refusal = access.refusal(Api.SHARED_MEMORY, {b"admin-key": b"s3cret"})
    assert refusal is not None
    assert refusal.message == "This protocol is restricted, expecting header 'triton-grpc-protocol-Admin-Key'"
    assert access.refusal(Api.SHARED_MEMORY, {b"triton-grpc-protocol-admin-key": b"s3cret"}) is None
    assert access.refusal(Api.SHARED_MEMORY, {b"triton-grpc-protocol-admin-key": b"bad, s3cret"}) is not None


def test_keys_come_first_and_the_header_is_wanted_too() -> None:
    access = Access([ADMIN], OneKey())
    refusal = access.refusal(Api.SHARED_MEMORY, {b"admin-key": b"s3cret"})
    assert refusal is not None
    assert refusal.kind == "unauthenticated"
    restricted = access.refusal(Api.SHARED_MEMORY, {b"x-api-key": b"k"})
    assert restricted is not None
    assert restricted.kind == "restricted"
    assert access.refusal(Api.SHARED_MEMORY, {b"x-api-key": b"k", b"admin-key": b"s3cret"}) is None


def test_a_probe_needs_no_key_unless_health_is_restricted() -> None:
    assert Access([], OneKey()).refusal(Api.HEALTH, {}) is None
    assert Access([RestrictedApi(frozenset({Api.HEALTH}), "k", "v")], OneKey()).refusal(Api.HEALTH, {}) is not None


def test_what_belongs_to_no_api_wants_a_key_only() -> None:
    assert Access([ADMIN]).refusal(None, {}) is None
    assert Access([], OneKey()).refusal(None, {}) is not None


def test_without_rules_there_is_nothing_to_ask() -> None:
    assert Access.of(()) is None
    assert Access.of((), OneKey()) is not None
    assert Access.of((ADMIN,)) is not None


def test_values_that_are_not_ascii() -> None:
    access = Access([RestrictedApi(frozenset({Api.TRACE}), "k", "schlüssel")])
    assert access.refusal(Api.TRACE, {b"k": "schlüssel".encode()}) is None
    assert access.refusal(Api.TRACE, {b"k": b"\xff\xfe"}) is not None
