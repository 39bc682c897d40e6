// Tables: the choice of columns as one value of the address, and boxes for acting on many rows.
"use strict";
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("[data-columns]")) return;
  const on = [...form.querySelectorAll("input[type=checkbox]:checked")].map((box) => box.value);
  form.querySelector("input[name=columns]").value = on.join(",");
});
document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-bulk]");
  if (!form) return;
  const boxes = [...form.querySelectorAll("input[name=key]")];
  if (event.target.matches("[data-all]")) boxes.forEach((box) => { box.checked = event.target.checked; });
  const chosen = boxes.filter((box) => box.checked).length;
  const bar = form.querySelector(".bulk");
  bar.hidden = chosen === 0;
  bar.querySelector("[data-count]").textContent = String(chosen);
});
