from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            "Order",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("customer", models.CharField(max_length=50)),
                ("loaves", models.IntegerField()),
                ("baked_at", models.DateTimeField(null=True)),
                ("baking", models.CharField(max_length=64, default="")),
            ],
        )
    ]
