"""Addresses of the people's pages."""

from django.urls import URLPattern, path

from portal.views import people

urlpatterns: list[URLPattern] = [
    path("people/", people.people, name="people"),
    path("people/new/", people.people_new, name="people-new"),
    path("people/<str:username>/", people.person, name="person"),
    path("people/<str:username>/role/", people.person_role, name="person-role"),
    path("people/<str:username>/leave/", people.person_leave, name="person-leave"),
]
