// Everywhere: copy buttons, a strip that says when the portal stops answering, and the keyboard. `/` searches, `c` creates a job, `j`/`k` move in tables, `g` + letter goes.
(function () {
  "use strict";
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.querySelector(button.dataset.copy);
    const select = () => {
      const range = document.createRange();
      range.selectNodeContents(source);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
    };
    if (!navigator.clipboard) return select();
    navigator.clipboard.writeText(source.textContent).then(() => { button.classList.add("done"); }, select);
  });

  // Parts of pages come by themselves; when one fails, what stands there is old, and an act was not done.
  const strip = document.getElementById("no-answer");
  const failing = new Set(); // what asked, as long as it has had no answer
  function told(event) {
    const status = event.detail.xhr ? event.detail.xhr.status : 0;
    if (event.type !== "htmx:afterRequest") failing.add(event.detail.elt);
    else if (event.detail.successful) failing.delete(event.detail.elt);
    failing.forEach((element) => { if (!element.isConnected) failing.delete(element); });
    if (failing.size && strip.hidden) {
      strip.querySelector("time").textContent = new Date().toLocaleTimeString(document.documentElement.lang);
      strip.querySelector("output").textContent = status ? `HTTP ${status}` : "";
    }
    strip.hidden = failing.size === 0;
  }
  if (strip) {
    for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout", "htmx:afterRequest"]) {
      document.addEventListener(name, told);
    }
  }

  let awaited = false; // `g` was pressed; the next letter says where to
  let timer = 0;
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

  function rows() {
    return [...document.querySelectorAll("[data-rows] tbody tr")].filter((row) => row.querySelector("a"));
  }

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const now = all.indexOf(document.activeElement.closest("tr"));
    const next = all[Math.min(all.length - 1, Math.max(0, now + step))];
    next.querySelector("a").focus();
  }

  function go(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (awaited) {
      awaited = false;
      window.clearTimeout(timer);
      if (/^[a-z]$/.test(event.key)) go(`[data-go="${event.key}"]`);
      return;
    }
    switch (event.key) {
      case "/": {
        const search = document.getElementById("search");
        if (search) { event.preventDefault(); search.focus(); }
        break;
      }
      case "c": go("[data-create]"); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "?": go("[data-help]"); break;
      case "g":
        awaited = true;
        timer = window.setTimeout(() => { awaited = false; }, 1500);
        break;
    }
  });
})();
