"""Addresses of what is taken back: the reclaim, its acts, and the receipts."""

from django.urls import URLPattern, path

from portal.views import reclaim

urlpatterns: list[URLPattern] = [
    path("reclaim/", reclaim.reclaim, name="reclaim"),
    path("reclaim/<slug:slug>/extend/", reclaim.extend, name="reclaim-extend"),
    path("reclaim/<slug:slug>/end/", reclaim.end_now, name="reclaim-end"),
    path("receipts/", reclaim.receipts, name="receipts"),
    path("receipts/<int:pk>/", reclaim.receipt, name="receipt"),
]
