"""Addresses of jobs."""

from django.urls import URLPattern, path

from portal.views import job_application, job_page, jobs, outlook, saved_values

urlpatterns: list[URLPattern] = [
    path("jobs/", jobs.job_list, name="jobs"),
    path("jobs/new/", jobs.submit, name="submit"),
    path("jobs/new/outlook/", outlook.draft, name="submit-outlook"),
    path("jobs/saved/", saved_values.add, name="saved-add"),
    path("jobs/saved/<int:pk>/remove/", saved_values.remove, name="saved-remove"),
    path("jobs/<int:pk>/", job_page.job_page, name="job"),
    path("jobs/<int:pk>/outlook/", outlook.of_job, name="job-outlook"),
    path("jobs/<int:pk>/status/", job_page.job_status, name="job-status"),
    path("jobs/<int:pk>/application/", job_application.application, name="job-application"),
    path("jobs/<int:pk>/log/", job_page.job_log, name="job-log"),
    path("jobs/<int:pk>/log.txt", job_page.job_log_file, name="job-log-file"),
    path("jobs/<int:pk>/cancel/", job_page.cancel, name="job-cancel"),
]
