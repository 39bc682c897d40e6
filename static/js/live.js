// Parts that come anew by themselves ([data-live], by htmx): not while nobody looks or somebody chooses in them, and
// without losing the focus, what is open and what is pushed aside.
(function () {
  "use strict";
  const LEADS = "a, button, input, select, summary, [tabindex]";
  let kept = null;

  // What must not be taken away under a reader's hands.
  function busy(part) {
    const chosen = window.getSelection();
    const inside = chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
    return document.hidden || inside || part.querySelector("details.picker[open]") !== null;
  }

  // An element by the nearest id around it and its place in there; it is another one after the swap.
  function place(element) {
    const around = element && element.closest("[id]");
    if (!around || around === element) return { id: element ? element.id : "", at: -1 };
    return { id: around.id, at: [...around.querySelectorAll(LEADS)].indexOf(element) };
  }

  function found(spot) {
    const around = spot.id ? document.getElementById(spot.id) : null;
    return around && spot.at >= 0 ? around.querySelectorAll(LEADS)[spot.at] : around;
  }

  function keep() {
    const pushed = [...document.querySelectorAll(".table-responsive")];
    kept = {
      focus: document.activeElement === document.body ? null : place(document.activeElement),
      open: [...document.querySelectorAll("details[id][open]")].map((one) => one.id),
      pushed: pushed.map((one) => [one.scrollLeft, one.scrollTop]),
      y: window.scrollY,
    };
  }

  function restore() {
    if (!kept) return;
    const before = kept;
    kept = null;
    before.open.forEach((id) => { const one = document.getElementById(id); if (one) one.open = true; });
    document.querySelectorAll(".table-responsive").forEach((one, i) => {
      if (before.pushed[i]) [one.scrollLeft, one.scrollTop] = before.pushed[i];
    });
    const now = before.focus && document.activeElement === document.body ? found(before.focus) : null;
    if (now) now.focus({ preventScroll: true });
    if (window.scrollY !== before.y) window.scrollTo(window.scrollX, before.y);
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.matches("[data-live]") && busy(event.detail.elt)) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => { if (event.detail.target.matches("[data-live]")) keep(); });
  document.addEventListener("htmx:afterSettle", restore);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) document.querySelectorAll("[data-live]").forEach((part) => window.htmx.trigger(part, "look"));
  });
})();
