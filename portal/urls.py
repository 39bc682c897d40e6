"""All addresses of the portal."""

from django.urls import path

urlpatterns: list = []
