"""Who is calling: people by bearer token, agents by node token. Only digests are stored and compared."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ledger.models import Node, User
from ledger.people import node_of_token, user_of_token


class BearerAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Any] | None:
        secret = _secret(request, b"bearer")
        if secret is None:
            return None
        token = user_of_token(secret)
        if token is None:
            raise AuthenticationFailed(_("This token is unknown, revoked or expired."))
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class AgentAuthentication(BaseAuthentication):
    """`Authorization: Agent <token>`; the caller is a Node, put into request.auth."""

    def authenticate(self, request: Request) -> tuple[None, Node] | None:
        secret = _secret(request, b"agent")
        if secret is None:
            return None
        node = node_of_token(secret)
        if node is None:
            raise AuthenticationFailed(_("This node token is unknown."))
        return None, node

    def authenticate_header(self, request: Request) -> str:
        return "Agent"


class IsAgent(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, Node)


def _secret(request: Request, scheme: bytes) -> str | None:
    parts = get_authorization_header(request).split()
    if not parts or parts[0].lower() != scheme:
        return None
    if len(parts) != 2:
        raise AuthenticationFailed(_("The Authorization header must hold one token."))
    try:
        return parts[1].decode("ascii")
    except UnicodeDecodeError:
        raise AuthenticationFailed(_("The token has characters that no token has.")) from None
