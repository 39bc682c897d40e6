"""Addresses of policies of jobs."""

from django.urls import URLPattern, path

from portal.views import policies

urlpatterns: list[URLPattern] = [
    path("policies/", policies.policy_list, name="policies"),
    path("policies/effective/", policies.effective, name="policies-effective"),
    path("policies/change/", policies.change, name="policies-change"),
    path("policies/change/confirm/", policies.confirm, name="policies-confirm"),
    path("policies/<int:pk>/", policies.policy_page, name="policy"),
]
