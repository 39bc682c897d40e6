// The submit page: apply a proposed change to the form, and ask for the outlook again.
(function () {
  "use strict";
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-apply]");
    const form = document.getElementById("submit-form");
    if (!button || !form) return;
    Object.entries(JSON.parse(button.dataset.apply)).forEach(([name, value]) => {
      const field = form.elements[name];
      if (!field) return;
      if (field.type === "checkbox") field.checked = Boolean(value);
      else field.value = value === null ? "" : value;
      const fold = field.closest("details");
      if (fold) fold.open = true;
      field.classList.add("changed");
    });
    form.dispatchEvent(new Event("input", { bubbles: true }));
  });
})();
