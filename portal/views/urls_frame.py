"""Addresses of the frame: home, search and help."""

from django.urls import URLPattern, path

from portal.views import help as help_views
from portal.views import home, search

urlpatterns: list[URLPattern] = [
    path("", home.home, name="home"),
    path("search/", search.search, name="search"),
    path("help/", help_views.help_page, name="help"),
    path("help/<slug:topic>/", help_views.help_page, name="help-topic"),
]
