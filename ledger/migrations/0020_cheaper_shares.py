"""A share costs at its beginning and at its end for each index that knows it: blocks and seats are found by those of
cards and of blocks, and that a card is in one mode is asked of what is open."""

import django.contrib.postgres.constraints
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0019_bounds_and_moves"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="cardshare",
            name="card_in_one_mig_mode",
        ),
        migrations.AlterField(
            model_name="cardshare",
            name="block",
            field=models.ForeignKey(
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="ledger.block",
            ),
        ),
        migrations.AlterField(
            model_name="cardshare",
            name="seat",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="ledger.cardseat",
            ),
        ),
        migrations.AddConstraint(
            model_name="cardshare",
            constraint=django.contrib.postgres.constraints.ExclusionConstraint(
                condition=models.Q(("period__upper_inf", True)),
                expressions=[("card", "="), ("mig_mode", "<>"), ("period", "&&")],
                name="card_in_one_mig_mode",
            ),
        ),
    ]
