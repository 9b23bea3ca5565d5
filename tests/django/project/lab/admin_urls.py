from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("tools/hipq/", include("hipq.django.dashboard")),
    path("apart/", include("hipq.django.dashboard"), {"backend": "apart"}),
]
