"""Addresses of what is out of the pool, and of drills."""

from django.urls import URLPattern, path

from portal.views import drills, out

urlpatterns: list[URLPattern] = [
    path("health/out/", out.out_list, name="out"),
    path("health/out/<int:pk>/", out.case_page, name="case"),
    *(
        path(f"health/out/<int:pk>/{act}/", out.case_act, {"act": act}, name=f"case-{act}")
        for act in ("done", "test", "release", "scrap")
    ),
    path("health/drills/", drills.drill_list, name="drills"),
    path("health/drills/new/", drills.drill_plan, name="drills-new"),
    path("health/drills/<int:pk>/", drills.drill_page, name="drill"),
    path("health/drills/<int:pk>/abort/", drills.drill_abort, name="drill-abort"),
]
