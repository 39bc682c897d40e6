"""The project of an address, for those who may see it; to others it is not there."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from ledger.acts import Act
from ledger.models import Project
from portal.views.gate import request_id, viewer


def projects_seen(request: HttpRequest) -> QuerySet[Project]:
    return Project.objects.visible_to(viewer(request)).select_related("owner", "department")


def project_of(request: HttpRequest, slug: str) -> Project:
    found = projects_seen(request).filter(slug=slug).first() if "\x00" not in slug else None
    if found is None:
        raise Http404(_("There is no such project, or you are not in it."))
    return found


def act_of(request: HttpRequest, reason: str = "") -> Act:
    return Act(viewer(request), "page", reason, request_id(request))
