"""Addresses of nodes, cards and zones."""

from django.urls import URLPattern, path

from portal.views import cards, node_acts, nodes, zones

urlpatterns: list[URLPattern] = [
    path("nodes/", nodes.node_list, name="nodes"),
    path("nodes/<str:hostname>/", nodes.node_page, name="node"),
    path("cards/", cards.card_list, name="cards"),
    path("cards/<str:uuid>/", cards.card_page, name="card"),
    path("machines/nodes/hold/", node_acts.act, {"of": "node", "verb": "hold"}, name="nodes-hold"),
    path("machines/nodes/drain/", node_acts.act, {"of": "node", "verb": "drain"}, name="nodes-drain"),
    path("machines/nodes/return/", node_acts.act, {"of": "node", "verb": "return"}, name="nodes-return"),
    path("machines/cards/hold/", node_acts.act, {"of": "card", "verb": "hold"}, name="cards-hold"),
    path("machines/cards/return/", node_acts.act, {"of": "card", "verb": "return"}, name="cards-return"),
    path("zones/", zones.zone_list, name="zones"),
    path("zones/plan/", zones.plan_form, name="zones-plan"),
    path("zones/plan/confirm/", zones.confirm, name="zones-plan-confirm"),
    path("zones/plans/<int:pk>/", zones.plan_page, name="plan"),
    path("zones/plans/<int:pk>/cancel/", zones.plan_cancel, name="plan-cancel"),
    path("zones/plans/<int:pk>/undo/", zones.plan_undo, name="plan-undo"),
]
