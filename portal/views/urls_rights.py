"""Addresses of extra rights."""

from django.urls import URLPattern, path

from portal.views import rights

urlpatterns: list[URLPattern] = [
    path("rights/", rights.rights, name="rights"),
    path("rights/new/", rights.right_new, name="right-new"),
    path("rights/<int:pk>/withdraw/", rights.right_withdraw, name="right-withdraw"),
]
