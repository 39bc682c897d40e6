// The live log: asks for bytes from a cursor, decodes them and appends them as text, never as HTML.
// htmx does the polling (#log-poll); colours and other terminal codes are dropped; \r starts its line again.
(function () {
  "use strict";
  const KEEP = 1000000; // characters on screen; older lines are cut
  const CHUNK = 65536; // a full answer means that more is waiting
  const CODES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
  const OPEN_CODE = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?)?$/; // a code that the next answer finishes
  const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;

  const poll = document.getElementById("log-poll");
  const log = document.getElementById("log");
  const failed = document.getElementById("log-error");
  const follow = document.getElementById("log-follow");
  if (!poll) return;

  const past = document.createTextNode(""); // complete lines
  const line = document.createTextNode(""); // the line that is being written
  let cursor = 0;
  let attempt = 0;
  let decoder = new TextDecoder();
  let rest = "";
  let cut = false;
  log.append(past, line);

  function bytes(base64) {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  }

  // Text without terminal codes; what may be half a code waits in `rest`.
  function cleaned(text) {
    text = rest + text;
    const open = text.match(OPEN_CODE);
    rest = open && open[0].length < 200 ? open[0] : "";
    return text.slice(0, text.length - rest.length).replace(CODES, "").replace(CONTROL, "");
  }

  // The line as a terminal would show it after its carriage returns.
  function settled(text) {
    const body = text.replace(/\r+$/, "");
    return body.slice(body.lastIndexOf("\r") + 1);
  }

  function append(text) {
    const lines = (line.data + text).split("\n");
    const last = lines.pop();
    if (lines.length) past.appendData(lines.map(settled).join("\n") + "\n");
    // keep a last \r: what follows it replaces the line
    log.classList.toggle("written", Boolean(past.data || last));
    line.data = last.endsWith("\r") ? settled(last) + "\r" : settled(last);
    if (past.data.length > KEEP * 1.5) {
      const from = past.data.indexOf("\n", past.data.length - KEEP) + 1;
      past.data = past.data.slice(from);
      if (!cut) log.dataset.cut = poll.dataset.cut;
      cut = true;
    }
  }

  function start(number) {
    if (attempt) append((line.data ? "\n" : "") + "— " + poll.dataset.attemptText + " " + number + " —\n");
    attempt = number;
    cursor = 0;
    rest = "";
    decoder = new TextDecoder();
  }

  function take(answer) {
    failed.hidden = !answer.error;
    failed.textContent = answer.error || "";
    if (answer.error) return;
    if (answer.attempt !== attempt) {
      start(answer.attempt);
    }
    if (answer.from !== cursor) return; // an answer to an older question
    const data = bytes(answer.data);
    cursor = answer.cursor;
    append(cleaned(decoder.decode(data, { stream: true })));
    if (data.length && follow.checked) log.scrollTop = log.scrollHeight;
    if (data.length >= CHUNK) setTimeout(() => window.htmx.trigger(poll, "more"), 20);
  }

  // Search: the browser marks the hits (CSS highlights), so that the text itself stays one piece.
  const search = document.getElementById("log-search");
  const found = document.getElementById("log-found");
  const MOST_HITS = 1000;
  let hits = [];
  let hit = -1;

  function ranges(node, wanted) {
    const text = node.data.toLowerCase();
    const out = [];
    for (let at = text.indexOf(wanted); at >= 0 && out.length < MOST_HITS; at = text.indexOf(wanted, at + wanted.length)) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      out.push(range);
    }
    return out;
  }

  function show(number) {
    hit = hits.length ? (number + hits.length) % hits.length : -1;
    found.textContent = search.value ? (hit + 1) + " / " + hits.length : "";
    if (hit < 0) return;
    follow.checked = false;
    const box = hits[hit].getBoundingClientRect();
    log.scrollTop += box.top - log.getBoundingClientRect().top - log.clientHeight / 2;
    if (window.Highlight) CSS.highlights.set("log-hit", new Highlight(hits[hit]));
  }

  function find() {
    const wanted = search.value.toLowerCase();
    hits = wanted ? [...ranges(past, wanted), ...ranges(line, wanted)].slice(0, MOST_HITS) : [];
    if (window.Highlight) {
      CSS.highlights.delete("log-hit");
      CSS.highlights.set("log-hits", new Highlight(...hits));
    }
    show(hits.length - 1); // the newest first
  }

  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (event.shiftKey) show(hit + 1); else show(hit - 1);
  });

  poll.addEventListener("htmx:configRequest", (event) => {
    Object.assign(event.detail.parameters, { cursor: cursor, attempt: attempt, rank: poll.dataset.rank });
  });
  poll.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) take(JSON.parse(event.detail.xhr.responseText));
  });
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; }, { passive: true });
  follow.addEventListener("change", () => { if (follow.checked) log.scrollTop = log.scrollHeight; });
})();
