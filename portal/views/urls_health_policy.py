"""Addresses of the health policy, and of faults that people clear."""

from django.urls import URLPattern, path

from portal.views import fault_acts, health_policy

urlpatterns: list[URLPattern] = [
    path("health/policy/", health_policy.policy, name="health-policy"),
    path("health/policy/change/", health_policy.change, name="health-policy-change"),
    path("health/policy/change/confirm/", health_policy.confirm, name="health-policy-confirm"),
    path("health/policy/versions/<int:number>/", health_policy.version, name="health-policy-version"),
    path("health/policy/versions/<int:number>/put-back/", health_policy.put_back, name="health-policy-put-back"),
    path("health/faults/<int:pk>/", fault_acts.fault, name="fault"),
]
