"""The views of projects, who is in them, invitations and requests: thin, through the writers of the ledger."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import invitations, projects, requests, roles
from ledger.acts import Act
from ledger.errors import Conflict, Refused
from ledger.models import Invitation, Membership, Project, ProjectRequest, User
from ledger.request_kinds import join_role
from ledger.vocabulary import ProjectRole, RequestKind, RequestState
from portal.api import project_answers as answers
from portal.api.filters import choice, clean_text
from portal.api.listing import ID_LIMIT, PAGING, Listing, Reading, request_id
from portal.api.project_inputs import (
    AnswerInput,
    ChangeInput,
    CommentInput,
    HandOverInput,
    InvitationInput,
    NewProjectInput,
    RequestInput,
    RoleInput,
    VerdictInput,
)


def act_of(request: Request, reason: str = "") -> Act:
    return Act(request.user, "api", reason, request_id(request))


def project_of(request: Request, slug: str) -> Project:
    rows = Project.objects.visible_to(request.user).select_related("owner", "department")
    found: Project = get_object_or_404(rows.prefetch_related("memberships__user"), slug=slug)
    return found


def taken(serializer: type[Any], request: Request) -> Any:
    """The input, judged; ValidationError names what is not right."""
    data = serializer(data=request.data)
    data.is_valid(raise_exception=True)
    return data


@extend_schema(tags=["projects"])
class Projects(Listing):
    serializer_class = NewProjectInput
    queryset = Project.objects.none()

    @extend_schema(operation_id="projects_list", summary="Projects that you may see", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        rows = Project.objects.visible_to(request.user).select_related("owner", "department")
        rows = rows.prefetch_related("memberships__user")
        return self.page(rows, lambda page: [answers.project(one) for one in page])

    @extend_schema(summary="Open a project (site admins and managers)", responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request) -> Response:
        roles.require_governing(request.user)
        data = taken(NewProjectInput, request)
        given = data.validated_data
        made = projects.open_project(
            slug=given["slug"], owner=given["owner"], details=data.details, act=act_of(request, given["reason"])
        )
        where = {"Location": f"/api/v1/projects/{made.slug}/"}
        return Response(answers.project(project_of(request, made.slug)), status.HTTP_201_CREATED, headers=where)


@extend_schema(tags=["projects"])
class ProjectDetail(Reading):
    @extend_schema(summary="One project with its members", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, slug: str) -> Response:
        return Response(answers.project(project_of(request, slug)))

    @extend_schema(
        summary="Change a project: title and purpose by its managers, the rest by the site",
        request=ChangeInput,
        responses=OpenApiTypes.OBJECT,
    )
    def patch(self, request: Request, slug: str) -> Response:
        project = project_of(request, slug)
        roles.require_changing(project.pk, request.user)
        data = taken(ChangeInput, request)
        reason = data.validated_data["reason"]
        projects.change_project(project=project, details=data.details, act=act_of(request, reason))
        return Response(answers.project(project_of(request, slug)))


@extend_schema(tags=["projects"])
class Member(Reading):
    def _user(self, username: str) -> User:
        found = User.objects.filter(username=username).first() if "\x00" not in username else None
        if found is None:
            raise NotFound
        return found

    @extend_schema(summary="Set a person's role", request=RoleInput, responses=OpenApiTypes.OBJECT)
    def put(self, request: Request, slug: str, username: str) -> Response:
        """Makes who is not in the project a member at once only for site admins; others invite."""
        project = project_of(request, slug)
        roles.require_managing(project.pk, request.user)
        user, data = self._user(username), taken(RoleInput, request).validated_data
        inside = Membership.objects.filter(project=project, user=user).exists()
        if not inside and not roles.is_admin(request.user):
            raise Conflict(_("They are not in the project: invite them."), field="user", code="not_member")
        role = ProjectRole(data["role"])
        projects.set_role(project=project, user=user, role=role, act=act_of(request, data["reason"]))
        return Response(answers.project(project_of(request, slug)))

    @extend_schema(summary="Take a person out, or leave", responses={204: None})
    def delete(self, request: Request, slug: str, username: str) -> Response:
        project = project_of(request, slug)
        if username != request.user.username:
            roles.require_managing(project.pk, request.user)
        if not projects.remove_member(project=project, user=self._user(username), act=act_of(request)):
            raise NotFound
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema(tags=["projects"])
class HandOver(Reading):
    @extend_schema(summary="Hand a project over", request=HandOverInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, slug: str) -> Response:
        project = project_of(request, slug)
        roles.require_owning(project, request.user)
        data = taken(HandOverInput, request).validated_data
        projects.hand_over(project=project, to=data["to"], act=act_of(request, data["reason"]))
        return Response(answers.project(project_of(request, slug)))


@extend_schema(tags=["projects"])
class ProjectInvitations(Reading):
    @extend_schema(summary="Invite a person", request=InvitationInput, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request, slug: str) -> Response:
        project = project_of(request, slug)
        roles.require_managing(project.pk, request.user)
        data = taken(InvitationInput, request).validated_data
        act = act_of(request, data["reason"])
        made = invitations.invite(project=project, user=data["user"], role=ProjectRole(data["role"]), act=act)
        return Response(answers.invitation(made), status.HTTP_201_CREATED)


@extend_schema(tags=["projects"])
class Invitations(Listing):
    queryset = Invitation.objects.none()

    @extend_schema(
        operation_id="invitations_list",
        summary="Invitations to you and to your projects",
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = Invitation.objects.visible_to(request.user).select_related("project", "user", "by")
        return self.page(rows, lambda page: [answers.invitation(one) for one in page])


@extend_schema(tags=["projects"])
class InvitationAnswer(Reading):
    @extend_schema(summary="Accept, decline or take back", request=AnswerInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        if pk >= ID_LIMIT:
            raise NotFound
        rows = Invitation.objects.visible_to(request.user).select_related("project", "user", "by")
        found: Invitation = get_object_or_404(rows, pk=pk)
        answer = taken(AnswerInput, request).validated_data["answer"]
        if answer == "withdraw":
            done = invitations.withdraw(invitation=found, act=act_of(request))
        else:
            done = invitations.answer(invitation=found, accept=answer == "accept", act=act_of(request))
        return Response(answers.invitation(done))


@extend_schema(tags=["requests"])
class Requests(Listing):
    parameters = PAGING | {"state", "kind", "project"}
    serializer_class = RequestInput
    queryset = ProjectRequest.objects.none()

    @extend_schema(
        operation_id="requests_list",
        summary="Requests that you may see, newest first",
        parameters=[
            OpenApiParameter("state", str, enum=[s.value for s in RequestState]),
            OpenApiParameter("kind", str, enum=[k.value for k in RequestKind]),
            OpenApiParameter("project", str),
        ],
        responses=OpenApiTypes.OBJECT,
    )
    def get(self, request: Request) -> Response:
        rows = ProjectRequest.objects.visible_to(request.user).select_related("project", "by")
        wanted = {
            "state": choice(request, "state", list(RequestState)),
            "kind": choice(request, "kind", list(RequestKind)),
            "project__slug": clean_text(request, "project"),
        }
        rows = rows.filter(**{name: value for name, value in wanted.items() if value})
        return self.page(rows, lambda page: [answers.request_brief(one) for one in page])

    @extend_schema(summary="Ask for something", responses={201: OpenApiTypes.OBJECT, 202: OpenApiTypes.OBJECT})
    def post(self, request: Request) -> Response:
        """To join is answered the same whether there is such a project or not (202): who is not in it does not learn
        of it."""
        given = taken(RequestInput, request).validated_data
        kind, act = RequestKind(given["kind"]), act_of(request, given["reason"])
        if kind == RequestKind.JOIN:
            return self._join(request, given, act)
        project = None
        if kind != RequestKind.NEW_PROJECT:
            project = Project.objects.visible_to(request.user).filter(slug=given.get("project", "")).first()
            if project is None:
                raise ValidationError({"project": _("There is no such project, or you are not in it.")})
        made = requests.ask(kind=kind, project=project, details=given["details"], act=act)
        where = {"Location": f"/api/v1/requests/{made.pk}/"}
        return Response(answers.request_detail(made), status.HTTP_201_CREATED, headers=where)

    def _join(self, request: Request, given: dict[str, Any], act: Act) -> Response:
        requests.check_room(request.user)
        join_role(given["details"])
        project = Project.objects.filter(slug=given.get("project", "")).first()
        try:
            if project is not None:
                requests.ask(kind=RequestKind.JOIN, project=project, details=given["details"], act=act)
        except Refused as refused:
            if refused.code not in ("asked", "project_ended"):
                raise
        text = _("If there is a project of this name, its managers have your request now.")
        return Response({"detail": text}, status.HTTP_202_ACCEPTED)


def _request(request: Request, pk: int) -> ProjectRequest:
    if pk >= ID_LIMIT:
        raise NotFound
    rows = ProjectRequest.objects.visible_to(request.user).select_related("project", "by")
    found: ProjectRequest = get_object_or_404(rows, pk=pk)
    return found


@extend_schema(tags=["requests"])
class RequestDetail(Reading):
    @extend_schema(summary="One request: what it changes, verdicts, comments", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, pk: int) -> Response:
        return Response(answers.request_detail(_request(request, pk)))


@extend_schema(tags=["requests"])
class RequestVerdicts(Reading):
    @extend_schema(summary="Approve or refuse", request=VerdictInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        found = _request(request, pk)
        given = taken(VerdictInput, request).validated_data
        act = act_of(request, given["reason"])
        return Response(answers.request_detail(requests.decide(request=found, approves=given["approve"], act=act)))


@extend_schema(tags=["requests"])
class RequestComments(Reading):
    @extend_schema(summary="Say something", request=CommentInput, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request, pk: int) -> Response:
        found = _request(request, pk)
        text = taken(CommentInput, request).validated_data["text"]
        requests.comment(request=found, text=text, act=act_of(request))
        return Response(answers.request_detail(_request(request, pk)), status.HTTP_201_CREATED)


@extend_schema(tags=["requests"])
class RequestWithdrawal(Reading):
    @extend_schema(summary="Take your request back", request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request, pk: int) -> Response:
        return Response(answers.request_detail(requests.withdraw(request=_request(request, pk), act=act_of(request))))
