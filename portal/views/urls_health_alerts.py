"""Addresses of alerts, below /health/."""

from django.urls import URLPattern, path

from portal.views import alert_channels, alert_rules, alerts

urlpatterns: list[URLPattern] = [
    path("health/alerts/", alerts.alerts, name="alerts"),
    path("health/alerts/<int:pk>/", alerts.alert, name="alert"),
    path("health/alerts/silences/", alerts.silences, name="silences"),
    path("health/alerts/silences/<int:pk>/end/", alerts.end_silence, name="silence-end"),
    path("health/alerts/rules/", alert_rules.rules, name="alert-rules"),
    path("health/alerts/rules/new/", alert_rules.new, name="alert-rule-new"),
    path("health/alerts/rules/<int:pk>/", alert_rules.change, name="alertrule"),
    path("health/alerts/gpu-commons.rules.yml", alert_rules.prometheus_file, name="alert-file"),
    path("health/alerts/channels/", alert_channels.channels, name="alert-channels"),
    path("health/alerts/channels/<str:channel>/test/", alert_channels.test, name="alertchannel-test"),
    path("health/alerts/ladder/<int:pk>/", alert_channels.rung, name="alertrung"),
]
