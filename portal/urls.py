"""All addresses of the portal. Pages are listed by area in portal/views/urls_*.py."""

from django.urls import include, path

from portal.api import metrics
from portal.views import (
    urls_account,
    urls_admin,
    urls_books,
    urls_frame,
    urls_health_alerts,
    urls_jobs,
    urls_machines,
    urls_people,
    urls_policies,
    urls_preemption,
    urls_projects,
    urls_quota,
    urls_reclaim,
    urls_rights,
)

urlpatterns = [
    *urls_frame.urlpatterns,
    *urls_account.urlpatterns,
    *urls_jobs.urlpatterns,
    *urls_machines.urlpatterns,
    *urls_projects.urlpatterns,
    *urls_books.urlpatterns,
    *urls_quota.urlpatterns,
    *urls_admin.urlpatterns,
    *urls_people.urlpatterns,
    *urls_reclaim.urlpatterns,
    *urls_policies.urlpatterns,
    *urls_rights.urlpatterns,
    *urls_preemption.urlpatterns,
    *urls_health_alerts.urlpatterns,
    path("api/v1/", include("portal.api.urls")),
    path("healthz", metrics.healthz, name="healthz"),
    path("readyz", metrics.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
]
