"""The audit trail by time, act and text of the reason, for the page that lists it: a million rows read by index."""

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Upper


class Migration(migrations.Migration):
    dependencies = [("ledger", "0005_user_session")]
    operations = [
        migrations.AddIndex("auditevent", models.Index(fields=["-at", "-id"], name="audit_by_time")),
        migrations.AddIndex(
            "auditevent",
            models.Index(fields=["verb"], name="audit_by_verb", opclasses=["varchar_pattern_ops"]),
        ),
        TrigramExtension(),
        migrations.AddIndex(
            "auditevent",
            GinIndex(OpClass(Upper("reason"), name="gin_trgm_ops"), condition=~Q(reason=""), name="audit_by_reason"),
        ),
    ]
