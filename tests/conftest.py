"""Fixtures that every test folder shares. The cast of people and machines is in tests/factories.py."""

import gc
from collections.abc import Iterator

import pytest

from tests import emptying
from tests.ledger import watch

pytest_configure = watch.register


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def static_files_are_found_when_asked_for() -> None:
    """Else every test client lists all of them first, which takes longer than most pages."""
    from django.conf import settings

    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(autouse=True, scope="session")
def pages_keep_what_they_were_given_alone(django_test_environment: None) -> Iterator[None]:
    """Else the test client copies what every template was given that they include, hundreds on a page."""
    from django.template.base import Template
    from django.template.context import Context
    from django.test.signals import template_rendered
    from django.utils.safestring import SafeString

    def render(template: Template, context: Context) -> SafeString:
        if context.template is template:  # not included by another
            template_rendered.send(sender=template, template=template, context=context)
        return template.nodelist.render(context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Template, "_render", render)
        yield


@pytest.fixture(autouse=True, scope="session")
def real_transactions_are_cleared_away_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        emptying.replace_flush(patch)
        yield


@pytest.fixture(autouse=True)
def language_and_time_zone_are_the_defaults() -> None:
    """A request leaves its own in the thread that served it, where the next test would go on with them."""
    from django.utils import timezone, translation

    translation.deactivate()
    timezone.deactivate()


@pytest.fixture(autouse=True)
def books_stay_clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """Database tests leave clean books behind, or fail."""
    yield from watch.watched(request)
