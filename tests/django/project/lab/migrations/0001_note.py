from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            "Note", [("id", models.BigAutoField(primary_key=True)), ("text", models.CharField(max_length=200))]
        )
    ]
