// Typing a date means that window; choosing another window drops the dates.
(function () {
  "use strict";
  const form = document.getElementById("window-form");
  const kind = form.elements.window;
  const dates = [form.elements.start, form.elements.end];
  dates.forEach((field) => field.addEventListener("input", () => { kind.value = "own"; }));
  kind.addEventListener("change", () => {
    if (kind.value !== "own") dates.forEach((field) => { field.value = ""; });
  });
})();
