"""Addresses of the health board and of what cards were like over time."""

from django.urls import URLPattern, path

from portal.views import health_board, health_history, health_quality, health_use, job_metrics

urlpatterns: list[URLPattern] = [
    path("health/", health_board.board, name="health"),
    path("health/part/", health_board.part, name="health-part"),
    path("health/quality/", health_quality.quality, name="quality"),
    path("health/use/", health_use.use, name="card-use"),
    path("health/half-used/", health_use.half_used_jobs, name="half-used"),
    path("health/history/node/<str:hostname>/", health_history.node, name="node-history"),
    path("health/history/<str:uuid>.json", health_history.card_data, name="card-history-data"),
    path("health/history/<str:uuid>/", health_history.card, name="card-history"),
    path("jobs/<int:pk>/metrics/", job_metrics.metrics, name="job-metrics"),
]
