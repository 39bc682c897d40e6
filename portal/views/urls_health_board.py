"""Addresses of the health board and of what cards were like over time."""

from django.urls import URLPattern, path

from portal.views import health_board

urlpatterns: list[URLPattern] = [
    path("health/", health_board.board, name="health"),
    path("health/part/", health_board.part, name="health-part"),
]
