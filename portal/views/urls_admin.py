"""Addresses of the operators' pages: the now-board, the fleet map, the queue, drift, tasks and the audit trail."""

from django.urls import URLPattern, path

from portal.views import audit_trail, fleet_map, ops, queue_control

urlpatterns: list[URLPattern] = [
    path("ops/", ops.now_board, name="ops"),
    path("ops/now/", ops.now_part, name="ops-now"),
    path("ops/map/", fleet_map.fleet_map, name="fleet-map"),
    path("ops/map/cards.json", fleet_map.data, name="fleet-map-data"),
    path("ops/queue/", queue_control.queue, name="queue"),
    path("ops/queue/<str:act>/", queue_control.act, name="queue-act"),
    path("ops/queue/<str:act>/confirm/", queue_control.confirm, name="queue-confirm"),
    path("ops/drift/", ops.drift, name="drift"),
    path("ops/commands/", ops.commands, name="commands"),
    path("ops/tasks/", ops.tasks, name="tasks"),
    path("audit/", audit_trail.trail, name="audit"),
    path("audit/<str:kind>/<str:key>/", audit_trail.history, name="audit-object"),
]
