"""The command that prints an API token."""

from __future__ import annotations

import re

import pytest
from django.core.management import CommandError

from ledger.clock import database_now
from ledger.models import ApiToken, AuditEvent
from tests import factories
from tests.portal.api.client import Api
from tests.portal.commands import run


@pytest.mark.django_db
def test_token_prints_one_that_works_and_stores_its_digest_only() -> None:
    factories.cast()
    secret = run("token", "researcher").strip()
    assert re.fullmatch(r"gpc_[A-Za-z0-9_-]{43}", secret)
    assert Api(secret).get("jobs/").status_code == 200
    assert secret not in str(list(AuditEvent.objects.values())) + str(list(ApiToken.objects.values()))
    assert AuditEvent.objects.filter(verb="token.created", via="command").count() == 1


@pytest.mark.django_db
def test_token_expires_when_told() -> None:
    factories.cast()
    secret = run("token", "researcher", "--days", "1").strip()
    assert Api(secret).get("jobs/").status_code == 200
    ApiToken.objects.update(expires_at=database_now())
    assert Api(secret).get("jobs/").status_code == 401


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nobody"], "there is no user 'nobody'"),
        ([""], "there is no user ''"),
        (["researcher", "--days", "0"], "between 1 and 3650"),
        (["researcher", "--days", "-1"], "between 1 and 3650"),
        (["researcher", "--days", "99999999999999999999"], "between 1 and 3650"),
        (["researcher", "--days", "x"], "invalid int value"),
        ([], "required: user"),
    ],
)
def test_token_refuses_wrong_arguments(words: list[str], says: str) -> None:
    factories.cast()
    with pytest.raises(CommandError, match=re.escape(says)):
        run("token", *words)
    assert not ApiToken.objects.exists()
