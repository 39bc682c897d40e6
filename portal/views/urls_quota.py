"""Addresses of quota and departments."""

from django.urls import URLPattern, path

from portal.views import departments, quota

urlpatterns: list[URLPattern] = [
    path("quota/", quota.quota_list, name="quota"),
    path("projects/<slug:slug>/quota/", quota.project_quota, name="quota-project"),
    path("projects/<slug:slug>/quota/confirm/", quota.confirm, name="quota-confirm"),
    path("projects/<slug:slug>/quota/members/", quota.member_limit, name="quota-member"),
    path("departments/", departments.department_list, name="departments"),
    path("departments/<slug:slug>/", departments.department_page, name="department"),
    path("departments/<slug:slug>/change/", departments.department_change, name="department-change"),
]
