"""The index of the unique constraint on allocation and verb serves for allocations as well."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0012_fewer_indexes"),
        ("scheduler", "0007_fingerprint"),
    ]

    operations = [
        migrations.AlterField(
            model_name="command",
            name="allocation",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="commands",
                to="ledger.allocation",
            ),
        ),
    ]
