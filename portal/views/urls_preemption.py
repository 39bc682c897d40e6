"""Addresses of pre-emption."""

from django.urls import URLPattern, path

from portal.views import preemptions

urlpatterns: list[URLPattern] = [
    path("ops/preemptions/", preemptions.preemptions, name="preemptions"),
]
