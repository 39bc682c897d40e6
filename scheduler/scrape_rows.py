"""What the portal reads from others: dcgm-exporters of nodes and applications of jobs. Written by scheduler.dcgm and
scheduler.applications alone."""

from __future__ import annotations

from django.db import models

from ledger.models import Job, Node


class Scrape(models.Model):
    """How reading one place went, and what has to be known of the last time to tell what changed since."""

    tried_at = models.DateTimeField()
    ok_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)  # in a row
    failed = models.PositiveBigIntegerField(default=0)  # in all
    error = models.CharField(max_length=300, default="")  # of the last one, while it fails
    seen = models.JSONField(default=dict)

    class Meta:
        abstract = True


class NodeScrape(Scrape):
    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="scrape")

    def __str__(self) -> str:
        return f"scrape of {self.node_id}"


class JobScrape(Scrape):
    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="scrape")

    def __str__(self) -> str:
        return f"scrape of job {self.job_id}"
