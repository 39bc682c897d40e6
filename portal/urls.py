"""All addresses of the portal."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path

from portal.api import metrics
from portal.views import account, books, home, job_page, jobs, nodes

urlpatterns = [
    path("", home.home, name="home"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("account/", account.account, name="account"),
    path("account/language/", account.language, name="language"),
    path("account/theme/", account.theme, name="theme"),
    path("jobs/", jobs.job_list, name="jobs"),
    path("jobs/new/", jobs.submit, name="submit"),
    path("jobs/<int:pk>/", job_page.job_page, name="job"),
    path("jobs/<int:pk>/status/", job_page.job_status, name="job-status"),
    path("jobs/<int:pk>/log/", job_page.job_log, name="job-log"),
    path("jobs/<int:pk>/log.txt", job_page.job_log_file, name="job-log-file"),
    path("jobs/<int:pk>/cancel/", job_page.cancel, name="job-cancel"),
    path("nodes/", nodes.node_list, name="nodes"),
    path("nodes/<str:hostname>/", nodes.node_page, name="node"),
    path("books/", books.books, name="books"),
    path("books/chart/", books.chart, name="books-chart"),
    path("api/v1/", include("portal.api.urls")),
    path("healthz", metrics.healthz, name="healthz"),
    path("readyz", metrics.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
]
