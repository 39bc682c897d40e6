"""Queued jobs that an operator holds back: since when, by whom and why; the database places none of them."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("ledger", "0003_usage_quarter")]
    operations = [
        migrations.AddField("job", "held_at", models.DateTimeField(null=True)),
        migrations.AddField(
            "job",
            "held_by",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField("job", "held_reason", models.CharField(default="", max_length=500)),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(held_at__isnull=True, held_by__isnull=True, held_reason="")
                | Q(held_at__isnull=False, held_by__isnull=False),
                name="job_held_by_somebody",
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(held_at__isnull=True) | ~Q(state__in=["starting", "running", "stopping"]),
                name="held_job_is_not_placed",
            ),
        ),
    ]
