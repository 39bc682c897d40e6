"""How near the nodes of a job must stand, at four levels; jobs whose placement is reproducible, or like another's."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from ledger.vocabulary import Distance


class Migration(migrations.Migration):
    dependencies = [("ledger", "0010_quota_bound")]

    operations = [
        migrations.AlterField(
            model_name="job",
            name="distance",
            field=models.CharField(
                choices=[(distance, distance) for distance in Distance], default=Distance.ANY, max_length=16
            ),
        ),
        migrations.AddField(model_name="job", name="reproducible", field=models.BooleanField(default=False)),
        migrations.AddField(
            model_name="job",
            name="like_job",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="ledger.job",
            ),
        ),
        migrations.AddField(model_name="job", name="like", field=models.JSONField(null=True)),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=Q(like_job__isnull=True, like__isnull=True)
                | Q(reproducible=True, like_job__isnull=False, like__isnull=False),
                name="job_like_another_is_reproducible",
            ),
        ),
    ]
