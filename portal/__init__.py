"""Everything a person or a program talks to over HTTP; the Django project. Imported by nobody."""

from portal.celery import app as celery_app

__all__ = ["celery_app"]
