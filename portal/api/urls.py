"""The addresses of /api/v1/."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from portal.api import (  # noqa: F401  the schema's extensions register themselves
    ends,
    machines,
    preemption_views,
    projects,
    quota,
    schema,
    views,
)

app_name = "api"
urlpatterns = [
    path("jobs/", views.Jobs.as_view(), name="jobs"),
    path("jobs/what-if/", quota.WhatIf.as_view(), name="what-if"),
    path("jobs/<int:pk>/", views.JobDetail.as_view(), name="job"),
    path("jobs/<int:pk>/preemption/", preemption_views.JobPreemption.as_view(), name="job-preemption"),
    path("preemptions/", preemption_views.Preemptions.as_view(), name="preemptions"),
    path("jobs/<int:pk>/cancel/", views.JobCancel.as_view(), name="job-cancel"),
    path("jobs/<int:pk>/log/", views.JobLog.as_view(), name="job-log"),
    path("jobs/<int:pk>/logs/", views.JobLog.as_view(), name="job-logs"),
    path("nodes/", machines.Nodes.as_view(), name="nodes"),
    path("nodes/<int:pk>/", machines.NodeDetail.as_view(), name="node"),
    path("cards/", machines.Cards.as_view(), name="cards"),
    path("zones/", machines.Zones.as_view(), name="zones"),
    path("projects/", projects.Projects.as_view(), name="projects"),
    path("projects/<slug:slug>/", projects.ProjectDetail.as_view(), name="project"),
    path("projects/<slug:slug>/members/<str:username>/", projects.Member.as_view(), name="member"),
    path("projects/<slug:slug>/quota/", quota.ProjectQuota.as_view(), name="project-quota"),
    path("quota/", quota.Quotas.as_view(), name="quota"),
    path("projects/<slug:slug>/hand-over/", projects.HandOver.as_view(), name="project-hand-over"),
    path("projects/<slug:slug>/invitations/", projects.ProjectInvitations.as_view(), name="project-invitations"),
    path("invitations/", projects.Invitations.as_view(), name="invitations"),
    path("invitations/<int:pk>/answer/", projects.InvitationAnswer.as_view(), name="invitation-answer"),
    path("requests/", projects.Requests.as_view(), name="requests"),
    path("requests/<int:pk>/", projects.RequestDetail.as_view(), name="request"),
    path("requests/<int:pk>/verdict/", projects.RequestVerdicts.as_view(), name="request-verdict"),
    path("requests/<int:pk>/comments/", projects.RequestComments.as_view(), name="request-comments"),
    path("requests/<int:pk>/withdraw/", projects.RequestWithdrawal.as_view(), name="request-withdraw"),
    path("holds/", machines.Holds.as_view(), name="holds"),
    path("holds/<int:pk>/end/", machines.HoldEnd.as_view(), name="hold-end"),
    path("books/balance/", views.Balance.as_view(), name="balance"),
    path("drift/", machines.DriftList.as_view(), name="drift"),
    path("agents/reports/", machines.AgentReports.as_view(), name="agent-reports"),
    path("reclaim/", ends.Reclaim.as_view(), name="reclaim"),
    path("receipts/", ends.Receipts.as_view(), name="receipts"),
    path("receipts/<int:pk>/", ends.ReceiptDetail.as_view(), name="receipt"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerSplitView.as_view(url_name="api:schema"), name="docs"),
    re_path(r"", views.Nowhere.as_view(), name="nowhere"),
]
