// Light or dark before the first paint: the person's choice (data-theme on <html>), else the system's.
(function () {
  "use strict";
  const root = document.documentElement;
  const choice = root.dataset.theme || "auto";
  if (choice !== "auto") {
    root.dataset.bsTheme = choice;
    return;
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const follow = () => { root.dataset.bsTheme = dark.matches ? "dark" : "light"; };
  dark.addEventListener("change", follow);
  follow();
})();
