"""The addresses of /api/v1/."""

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from portal.api import views

app_name = "api"
urlpatterns = [
    path("jobs/", views.Jobs.as_view(), name="jobs"),
    path("jobs/<int:pk>/", views.JobDetail.as_view(), name="job"),
    path("jobs/<int:pk>/cancel/", views.JobCancel.as_view(), name="job-cancel"),
    path("jobs/<int:pk>/log/", views.JobLog.as_view(), name="job-log"),
    path("jobs/<int:pk>/logs/", views.JobLog.as_view(), name="job-logs"),
    path("nodes/", views.Nodes.as_view(), name="nodes"),
    path("nodes/<int:pk>/", views.NodeDetail.as_view(), name="node"),
    path("cards/", views.Cards.as_view(), name="cards"),
    path("zones/", views.Zones.as_view(), name="zones"),
    path("projects/", views.Projects.as_view(), name="projects"),
    path("holds/", views.Holds.as_view(), name="holds"),
    path("holds/<int:pk>/end/", views.HoldEnd.as_view(), name="hold-end"),
    path("books/balance/", views.Balance.as_view(), name="balance"),
    path("drift/", views.DriftList.as_view(), name="drift"),
    path("agents/reports/", views.AgentReports.as_view(), name="agent-reports"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerView.as_view(url_name="api:schema"), name="docs"),
]
