"""Addresses of the account pages: sign-in, settings, password, sessions, tokens."""

from django.contrib.auth.views import LogoutView
from django.urls import URLPattern, path

from portal.views import account, account_password, account_sessions, account_tokens

urlpatterns: list[URLPattern] = [
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("account/", account.account, name="account"),
    path("account/language/", account.language, name="language"),
    path("account/theme/", account.theme, name="theme"),
    path("account/password/", account_password.password, name="account-password"),
    path("account/sessions/", account_sessions.session_list, name="sessions"),
    path("account/sessions/end-others/", account_sessions.sessions_end_others, name="sessions-end-others"),
    path("account/sessions/<slug:digest>/end/", account_sessions.session_end, name="session-end"),
    path("account/tokens/", account_tokens.tokens, name="tokens"),
    path("account/tokens/<int:pk>/revoke/", account_tokens.token_revoke, name="token-revoke"),
]
