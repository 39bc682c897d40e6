"""The portal application: pages, API, commands."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "portal"
