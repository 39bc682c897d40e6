"""The addresses of /api/v1/."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from portal.api import machines, quota, schema, views  # noqa: F401  the schema's extensions register themselves

app_name = "api"
urlpatterns = [
    path("jobs/", views.Jobs.as_view(), name="jobs"),
    path("jobs/what-if/", quota.WhatIf.as_view(), name="what-if"),
    path("jobs/<int:pk>/", views.JobDetail.as_view(), name="job"),
    path("jobs/<int:pk>/cancel/", views.JobCancel.as_view(), name="job-cancel"),
    path("jobs/<int:pk>/log/", views.JobLog.as_view(), name="job-log"),
    path("jobs/<int:pk>/logs/", views.JobLog.as_view(), name="job-logs"),
    path("nodes/", machines.Nodes.as_view(), name="nodes"),
    path("nodes/<int:pk>/", machines.NodeDetail.as_view(), name="node"),
    path("cards/", machines.Cards.as_view(), name="cards"),
    path("zones/", machines.Zones.as_view(), name="zones"),
    path("projects/", views.Projects.as_view(), name="projects"),
    path("quota/", quota.Quotas.as_view(), name="quota"),
    path("projects/<slug:slug>/quota/", quota.ProjectQuota.as_view(), name="project-quota"),
    path("holds/", machines.Holds.as_view(), name="holds"),
    path("holds/<int:pk>/end/", machines.HoldEnd.as_view(), name="hold-end"),
    path("books/balance/", views.Balance.as_view(), name="balance"),
    path("drift/", machines.DriftList.as_view(), name="drift"),
    path("agents/reports/", machines.AgentReports.as_view(), name="agent-reports"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="api:schema"), name="docs"),
    re_path(r"", views.Nowhere.as_view(), name="nowhere"),
]
