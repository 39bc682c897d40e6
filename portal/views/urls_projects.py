"""Addresses of projects, who is in them, and what is asked for."""

from django.urls import URLPattern, path

from portal.views import project_members, project_requests, projects

urlpatterns: list[URLPattern] = [
    path("projects/", projects.project_list, name="projects"),
    path("projects/new/", projects.project_new, name="projects-new"),
    path("projects/<slug:slug>/", projects.project_page, name="project"),
    path("projects/<slug:slug>/change/", projects.project_change, name="project-change"),
    path("projects/<slug:slug>/invite/", project_members.invite, name="project-invite"),
    path("projects/<slug:slug>/hand-over/", project_members.hand_over, name="project-hand-over"),
    path("projects/<slug:slug>/extension/", project_requests.ask_extension, name="project-extension"),
    path("projects/<slug:slug>/more/", project_requests.ask_quota, name="project-more"),
    path("projects/<slug:slug>/members/<str:username>/", project_members.member, name="member"),
    path("projects/<slug:slug>/members/<str:username>/remove/", project_members.member_remove, name="member-remove"),
    path("invitations/<int:pk>/accept/", project_members.invitation_act, {"act": "accept"}, name="invitation-accept"),
    path(
        "invitations/<int:pk>/decline/", project_members.invitation_act, {"act": "decline"}, name="invitation-decline"
    ),
    path(
        "invitations/<int:pk>/withdraw/",
        project_members.invitation_act,
        {"act": "withdraw"},
        name="invitation-withdraw",
    ),
    path("requests/", project_requests.request_list, name="requests"),
    path("requests/project/", project_requests.ask_project, name="requests-project"),
    path("requests/join/", project_requests.ask_to_join, name="requests-join"),
    path("requests/<int:pk>/", project_requests.request_page, name="request"),
    path("requests/<int:pk>/verdict/", project_requests.request_verdict, name="request-verdict"),
    path("requests/<int:pk>/comment/", project_requests.request_comment, name="request-comment"),
    path("requests/<int:pk>/withdraw/", project_requests.request_withdraw, name="request-withdraw"),
]
