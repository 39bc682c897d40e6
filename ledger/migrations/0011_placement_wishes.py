"""How near the nodes of a job must stand, at four levels."""

from django.db import migrations, models

from ledger.vocabulary import Distance


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_batched_guards")]

    operations = [
        migrations.AlterField(
            model_name="job",
            name="distance",
            field=models.CharField(
                choices=[(distance, distance) for distance in Distance], default=Distance.ANY, max_length=16
            ),
        ),
    ]
