// The name to save the values of the submit form under: Enter there saves them and submits no job.
(function () {
  "use strict";
  const name = document.getElementById("id_save_as");
  const button = document.getElementById("save-values");
  if (!name || !button) return;
  name.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    button.click();
  });
  name.addEventListener("input", (event) => { event.stopPropagation(); }); // it changes nothing of the outlook
})();
