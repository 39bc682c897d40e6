// The fleet map: one JSON of columns drawn on a canvas as wide as the page and as high as its window, so that 10,000
// cards cost no more than those in sight. Texts come from the page (#map-texts); all of them are set as text.
(function () {
  "use strict";
  const view = document.getElementById("map-view");
  if (!view) return;
  const texts = JSON.parse(document.getElementById("map-texts").textContent);
  const words = texts.words;
  const room = document.getElementById("map-room");
  const canvas = document.getElementById("map-canvas");
  const pen = canvas.getContext("2d");
  const form = document.getElementById("map-form");
  const failed = document.getElementById("map-error");

  const SIZES = [30, 26, 22, 18, 15, 12, 10]; // pixels of a card, the largest that fits the window is taken
  const GAP = 1;
  const BETWEEN = 5; // nodes
  const LABEL = 17; // a rack's name
  const SHORTEST = 150; // pixels that a rack's name gets at least
  const APART = 12; // racks
  const LOWEST = 160; // pixels of a map of few cards
  const WIDE = 8; // cards side by side in a node
  const AGAIN_MS = 20000;

  let data = null;
  let lines = []; // {y, h, labels: [{x, text, room}], nodes: [{x, w, node, first, count}]}
  let owners = []; // node of each card
  let size = SIZES[0];
  let height = 0;
  let classes = []; // of the chosen colour: {label, fill, pattern}
  let classOf = []; // of each card
  let pressed = new Set(); // classes that stand out
  let cursor = -1;
  let hovered = -1;
  let colour = texts.legends[view.dataset.colour] ? view.dataset.colour : "state";
  let tiles = new Map();
  let waiting = false;
  let etag = null;

  // -- classes -------------------------------------------------------------------------------------------------------

  function valueOf(card) {
    const c = data.cards;
    switch (colour) {
      case "form": return data.nodes.form[owners[card]];
      case "temperature": return c.temperature[card];
      case "given": return percent(c.given[card], c.mib[card]);
      case "memory": return c.used[card] === null ? null : percent(c.used[card], c.mib[card]);
      case "load": return c.load[card];
      case "health": return c.health[card];
      case "faults": return c.faults[card] + data.nodes.faults[owners[card]];
      case "owner": return c.owner[card];
      default: return c.state[card];
    }
  }

  // Anything more than nothing is at least 1, and only all of it is 100.
  function percent(part, whole) {
    if (part <= 0) return 0;
    return part >= whole ? 100 : Math.max(1, Math.min(99, Math.floor((100 * part) / whole)));
  }

  function classify() {
    const legend = texts.legends[colour];
    classes = legend.entries.map((entry) => Object.assign({ n: 0 }, entry));
    const byKey = new Map(classes.map((entry, i) => [entry.key, i]));
    const steps = classes.map((entry, i) => [entry.key, i]).filter(([key]) => typeof key === "number");
    if (legend.kind === "owner") {
      data.projects.forEach((slug, i) => {
        byKey.set(i, classes.length);
        const pattern = legend.patterns[Math.floor(i / legend.palette) % legend.patterns.length];
        classes.push({ key: i, label: slug, fill: "p" + (i % legend.palette), pattern: pattern, n: 0 });
      });
    }
    classOf = new Int16Array(owners.length);
    for (let card = 0; card < owners.length; card += 1) {
      const value = valueOf(card);
      let found = byKey.get(value);
      if (legend.kind === "step" && value !== null) {
        for (const [from, i] of steps) if (value >= from) found = i;
      }
      classOf[card] = found === undefined ? 0 : found;
      classes[classOf[card]].n += 1;
    }
  }

  function drawLegend() {
    const box = document.getElementById("map-legend");
    box.replaceChildren();
    classes.forEach((entry, i) => {
      if (texts.legends[colour].kind === "owner" && entry.n === 0) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "map-class";
      button.setAttribute("aria-pressed", pressed.has(i) ? "true" : "false");
      const mark = document.createElement("canvas");
      const ratio = window.devicePixelRatio || 1;
      mark.width = mark.height = 14 * ratio;
      mark.setAttribute("aria-hidden", "true");
      mark.getContext("2d").drawImage(tile(i, 14), 0, 0);
      const label = document.createElement("span");
      label.textContent = entry.label;
      label.title = entry.label;
      const count = document.createElement("span");
      count.className = "num sub";
      count.textContent = grouped(entry.n);
      button.append(mark, label, count);
      button.addEventListener("click", () => {
        if (!pressed.delete(i)) pressed.add(i);
        button.setAttribute("aria-pressed", pressed.has(i) ? "true" : "false");
        draw();
      });
      box.append(button);
    });
  }

  function grouped(n) {
    return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  }

  // -- tiles: a class drawn once in each size ------------------------------------------------------------------------

  function shade(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function tile(index, side) {
    const key = index + ":" + side;
    if (!tiles.has(key)) tiles.set(key, newTile(classes[index], side));
    return tiles.get(key);
  }

  function newTile(entry, side) {
    const ratio = window.devicePixelRatio || 1;
    const made = document.createElement("canvas");
    made.width = made.height = Math.round(side * ratio);
    const ink = made.getContext("2d");
    ink.scale(ratio, ratio);
    ink.fillStyle = shade("--map-" + entry.fill);
    ink.fillRect(0, 0, side, side);
    ink.strokeStyle = shade("--map-line");
    ink.lineWidth = 1;
    ink.strokeRect(0.5, 0.5, side - 1, side - 1);
    ink.strokeStyle = ink.fillStyle = shade(dark(shade("--map-" + entry.fill)) ? "--map-pale" : "--map-ink");
    ink.lineWidth = side > 16 ? 1.6 : 1.1;
    pattern(ink, entry.pattern, side);
    return made;
  }

  // Whether a fill (#rrggbb) needs a pale pattern to be seen.
  function dark(fill) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b < 110;
  }

  function pattern(ink, name, side) {
    const stroke = (x1, y1, x2, y2) => {
      ink.beginPath();
      ink.moveTo(x1, y1);
      ink.lineTo(x2, y2);
      ink.stroke();
    };
    if (name === "half") {
      ink.fillStyle = shade("--map-free");
      ink.beginPath();
      ink.moveTo(1, 1);
      ink.lineTo(side - 1, 1);
      ink.lineTo(side - 1, side - 1);
      ink.fill();
    } else if (name === "diagonal") {
      stroke(0, side * 0.6, side * 0.6, 0);
      stroke(side * 0.4, side, side, side * 0.4);
    } else if (name === "back") {
      stroke(side * 0.4, 0, side, side * 0.6);
      stroke(0, side * 0.4, side * 0.6, side);
    } else if (name === "cross") {
      stroke(side * 0.2, side * 0.2, side * 0.8, side * 0.8);
      stroke(side * 0.2, side * 0.8, side * 0.8, side * 0.2);
    } else if (name === "dots") {
      for (const [x, y] of [[0.3, 0.3], [0.7, 0.3], [0.3, 0.7], [0.7, 0.7]]) {
        ink.beginPath();
        ink.arc(side * x, side * y, side > 16 ? 1.7 : 1.1, 0, 7);
        ink.fill();
      }
    }
  }

  // -- layout --------------------------------------------------------------------------------------------------------

  function arrange() {
    const width = Math.max(60, view.clientWidth);
    view.style.height = ""; // as the style sheet says: what the map may take at most
    const most = view.clientHeight;
    for (size of SIZES) {
      layOut(width);
      if (height <= most) break;
    }
    // Few cards take what they need. The height is the same each time, so the observer of the view comes to rest.
    view.style.height = height < most ? Math.max(LOWEST, height) + "px" : "";
    room.style.height = height + "px";
  }

  // Racks stand side by side as far as they fit; one that is wider than the page goes on in further lines.
  function layOut(width) {
    const step = size + GAP;
    let line = null;
    let x = 0;
    let y = 0;
    const open = (labelled) => {
      if (line) y = line.y + line.h + BETWEEN;
      line = { y: y + (labelled ? LABEL : 0), h: 0, labels: [], nodes: [] };
      lines.push(line);
      x = 0;
    };
    lines = [];
    racks().forEach((rack) => {
      const total = rack.nodes.reduce((sum, node) => sum + Math.min(node.count, WIDE) * step + BETWEEN, 0);
      const room = Math.min(width, Math.max(total, SHORTEST));
      if (!line || x + room > width || !line.labels.length) open(true);
      line.labels.push({ x: x, text: rack.name, room: room - BETWEEN });
      const left = x;
      rack.nodes.forEach((node) => {
        const w = Math.min(node.count, WIDE) * step;
        if (x + w > width && x > 0) open(false);
        line.nodes.push({ x: x, w: w, node: node.node, first: node.first, count: node.count });
        line.h = Math.max(line.h, Math.ceil(node.count / WIDE) * step);
        x += w + BETWEEN;
      });
      x = Math.max(x, line.labels.length ? left + room : x) + APART;
    });
    height = line ? line.y + line.h + BETWEEN : 0;
  }

  // The nodes that have cards, by place, in their order.
  function racks() {
    const found = [];
    let first = 0;
    data.nodes.cards.forEach((count, node) => {
      const place = data.nodes.place[node];
      if (count && (!found.length || found[found.length - 1].place !== place)) {
        found.push({ place: place, name: data.places[place] || words.no_place, nodes: [] });
      }
      if (count) found[found.length - 1].nodes.push({ node: node, first: first, count: count });
      first += count;
    });
    return found;
  }

  // The first line whose lower edge lies below y.
  function lineAt(y) {
    let low = 0;
    let high = lines.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (lines[middle].y + lines[middle].h > y) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  function spot(card) {
    const line = lines.find((l) => { const last = l.nodes[l.nodes.length - 1]; return card < last.first + last.count; });
    const node = line.nodes.find((n) => card < n.first + n.count);
    const at = card - node.first;
    const step = size + GAP;
    return { line: line, x: node.x + (at % WIDE) * step, y: line.y + Math.floor(at / WIDE) * step };
  }

  function cardAt(x, y) {
    const line = lines[lineAt(y)];
    if (!line || y < line.y) return -1;
    const step = size + GAP;
    const node = line.nodes.find((n) => x >= n.x && x < n.x + n.w);
    if (!node) return -1;
    const at = Math.floor((y - line.y) / step) * WIDE + Math.floor((x - node.x) / step);
    return at < node.count ? node.first + at : -1;
  }

  // -- drawing -------------------------------------------------------------------------------------------------------

  function draw() {
    if (waiting || !data) return;
    waiting = true;
    window.requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  }

  function paint() {
    const ratio = window.devicePixelRatio || 1;
    const width = view.clientWidth;
    const tall = view.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(tall * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(tall * ratio);
      canvas.style.width = width + "px";
      canvas.style.height = tall + "px";
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, tall);
    pen.translate(0, -view.scrollTop);
    pen.font = "12px " + getComputedStyle(document.body).fontFamily;
    pen.textBaseline = "alphabetic";
    const ink = shade("--gc-text");
    for (let i = lineAt(view.scrollTop); i < lines.length && lines[i].y - LABEL < view.scrollTop + tall; i += 1) {
      paintLine(lines[i], ink);
    }
    if (cursor >= 0) paintCursor(ink);
    view.dataset.drawn = colour;
  }

  // The end of a name tells racks apart, so the start is cut.
  function fitted(text, room) {
    if (pen.measureText(text).width <= room) return text;
    let cut = text.slice(0, 200);
    while (cut.length > 1 && pen.measureText("…" + cut).width > room) cut = cut.slice(1);
    return "…" + cut;
  }

  function paintLine(line, ink) {
    const step = size + GAP;
    pen.globalAlpha = 1;
    pen.fillStyle = ink;
    for (const label of line.labels) pen.fillText(fitted(label.text, label.room), label.x, line.y - 4);
    for (const node of line.nodes) {
      for (let at = 0; at < node.count; at += 1) {
        const found = classOf[node.first + at];
        pen.globalAlpha = pressed.size && !pressed.has(found) ? 0.15 : 1;
        pen.drawImage(tile(found, size), node.x + (at % WIDE) * step, line.y + Math.floor(at / WIDE) * step, size, size);
      }
    }
    pen.globalAlpha = 1;
  }

  function paintCursor(ink) {
    const at = spot(cursor);
    pen.lineWidth = 3;
    pen.strokeStyle = ink;
    pen.strokeRect(at.x - 1.5, at.y - 1.5, size + 3, size + 3);
    pen.lineWidth = 1;
    pen.strokeStyle = shade("--gc-surface");
    pen.strokeRect(at.x - 0.5, at.y - 0.5, size + 1, size + 1);
  }

  // -- details -------------------------------------------------------------------------------------------------------

  function mib(amount) {
    if (amount < 1024) return amount + " MiB";
    if (amount % 1024 === 0) return amount / 1024 + " GiB";
    const rounded = Number((amount / 1024).toFixed(amount < 10240 ? 2 : 1)); // as the filter `mib` of the pages
    return (Number.isInteger(rounded) ? rounded.toFixed(1) : rounded) + " GiB";
  }

  function legendWord(name, key) {
    const entry = texts.legends[name].entries.find((one) => one.key === key);
    return entry ? entry.label : String(key);
  }

  function facts(card) {
    const c = data.cards;
    const n = data.nodes;
    const node = owners[card];
    const owner = c.owner[card];
    const told = (value, unit) => (value === null ? words.not_told : value + unit);
    const holds = [n.hold[node], c.hold[card]].filter(Boolean).map((kind) => texts.holds[kind] || kind);
    return [
      [words.node, n.name[node] + " · " + (texts.nodes[n.state[node]] || n.state[node])],
      [words.place, data.places[n.place[node]] || words.no_place],
      [words.zone, n.zone[node] < 0 ? "—" : data.zones[n.zone[node]]],
      [words.form, texts.forms[n.form[node]] || n.form[node]],
      [words.card, words.slot.replace("%(n)s", c.slot[card]) + " · " + data.models[c.model[card]] + " · " + mib(c.mib[card])],
      [words.state, [legendWord("state", c.state[card])].concat(holds).join(" · ")],
      [words.given, mib(c.given[card]) + " (" + words.tenants + ": " + c.tenants[card] + ")"],
      [words.owner, owner >= 0 ? data.projects[owner] : legendWord("owner", owner)],
      [words.temperature, told(c.temperature[card], " °C")],
      [words.used, c.used[card] === null ? words.not_told : mib(c.used[card])],
      [words.load, told(c.load[card], " %")],
      [words.faults, String(c.faults[card] + n.faults[node])],
      [words.health, legendWord("health", c.health[card])],
    ];
  }

  function address(card) {
    const name = encodeURIComponent(data.nodes.name[owners[card]]);
    return view.dataset.node.replace(view.dataset.any, () => name);
  }

  function show(card, aloud) {
    const list = document.getElementById("map-facts");
    list.replaceChildren();
    const found = facts(card);
    found.forEach(([name, value]) => {
      const term = document.createElement("dt");
      const told = document.createElement("dd");
      term.textContent = name;
      told.textContent = value;
      list.append(term, told);
    });
    const open = document.getElementById("map-open");
    open.hidden = false;
    open.firstElementChild.href = address(card);
    if (aloud) {
      const said = found.filter(([name]) => [words.node, words.card, words.state, words.owner].includes(name));
      document.getElementById("map-said").textContent = said.map((pair) => pair.join(": ")).join("; ");
    }
  }

  function moveTo(card) {
    cursor = Math.max(0, Math.min(owners.length - 1, card));
    const at = spot(cursor);
    if (at.y - LABEL < view.scrollTop) view.scrollTop = Math.max(0, at.y - LABEL);
    if (at.y + size + 4 > view.scrollTop + view.clientHeight) view.scrollTop = at.y + size + 4 - view.clientHeight;
    show(cursor, true);
    draw();
  }

  // The card nearest to this one in the next row of cards above or below.
  function beside(card, down) {
    const at = spot(card);
    const step = size + GAP;
    const inside = cardAt(at.x + 1, at.y + (down ? step : -step) + 1);
    if (inside >= 0) return inside;
    const next = lines[lines.indexOf(at.line) + (down ? 1 : -1)];
    if (!next) return card;
    const row = down ? 0 : Math.floor((next.h - 1) / step);
    let best = card;
    let distance = Infinity;
    next.nodes.forEach((node) => {
      const rows = Math.ceil(node.count / WIDE);
      const start = Math.min(row, rows - 1) * WIDE;
      for (let i = start; i < Math.min(start + WIDE, node.count); i += 1) {
        const far = Math.abs(node.x + (i - start) * step - at.x);
        if (far < distance) [best, distance] = [node.first + i, far];
      }
    });
    return best;
  }

  const KEYS = {
    ArrowRight: () => cursor + 1,
    ArrowLeft: () => cursor - 1,
    ArrowDown: () => beside(cursor, true),
    ArrowUp: () => beside(cursor, false),
    Home: () => 0,
    End: () => owners.length - 1,
  };

  view.addEventListener("keydown", (event) => {
    if (!data || !owners.length || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && cursor >= 0) {
      window.location.assign(address(cursor));
    } else if (KEYS[event.key]) {
      event.preventDefault();
      moveTo(cursor < 0 ? 0 : KEYS[event.key]());
    }
  });
  view.addEventListener("focus", () => { if (data && owners.length && cursor < 0 && view.matches(":focus-visible")) moveTo(0); });
  view.addEventListener("mousemove", (event) => {
    if (!data) return;
    const card = pointed(event);
    view.classList.toggle("on-card", card >= 0);
    if (card >= 0 && card !== hovered) show(card, false);
    hovered = card;
  });
  view.addEventListener("mouseleave", () => { hovered = -1; if (cursor >= 0) show(cursor, false); });
  view.addEventListener("click", (event) => {
    const card = data ? pointed(event) : -1;
    if (card >= 0) moveTo(card);
  });
  view.addEventListener("dblclick", (event) => {
    const card = data ? pointed(event) : -1;
    if (card >= 0) window.location.assign(address(card));
  });

  function pointed(event) {
    const box = view.getBoundingClientRect();
    const x = event.clientX - box.left - view.clientLeft;
    return cardAt(x, event.clientY - box.top - view.clientTop + view.scrollTop);
  }

  // -- data ----------------------------------------------------------------------------------------------------------

  function take(answer) {
    data = answer;
    owners = [];
    data.nodes.cards.forEach((count, node) => { for (let i = 0; i < count; i += 1) owners.push(node); });
    if (cursor >= owners.length) cursor = -1;
    const drawn = data.nodes.cards.filter((count) => count > 0).length;
    const bare = data.nodes.cards.length - drawn;
    const shown = words.shown.replace("%(n)s", grouped(owners.length)).replace("%(m)s", grouped(drawn));
    const rest = bare ? "; " + words.bare.replace("%(n)s", grouped(bare)) : "";
    document.getElementById("map-count").textContent = shown + rest;
    arrange();
    recolour();
    if (cursor >= 0) show(cursor, false);
  }

  function recolour() {
    tiles = new Map();
    classify();
    drawLegend();
    draw();
  }

  function trouble(text) {
    failed.hidden = !text;
    failed.textContent = text;
  }

  function load() {
    const headers = etag ? { "If-None-Match": etag } : {};
    window.fetch(view.dataset.source, { headers: headers, credentials: "same-origin", cache: "no-store" })
      .then((response) => {
        if (response.status === 304) return trouble("");
        if (response.redirected) return trouble(words.ended);
        if (!response.ok) throw new Error(String(response.status));
        etag = response.headers.get("ETag");
        return response.json().then((answer) => { trouble(""); take(answer); });
      })
      .catch(() => trouble(words.failed));
  }

  function choose(name) {
    if (!texts.legends[name] || name === colour) return;
    colour = name;
    pressed = new Set();
    if (data) recolour();
    const address = new URL(window.location.href);
    address.searchParams.set("colour", name);
    address.searchParams.delete("show");
    window.history.replaceState(null, "", address);
  }

  // ?show=1,2 presses those states of the legend from the start.
  function pressFromAddress() {
    const asked = (new URL(window.location.href).searchParams.get("show") || "").split(",");
    texts.legends.state.entries.forEach((entry, i) => {
      if (colour === "state" && asked.includes(String(entry.key))) pressed.add(i);
    });
  }

  form.elements.colour.addEventListener("change", () => choose(form.elements.colour.value));
  if (form.elements.rack) form.elements.rack.addEventListener("change", () => form.requestSubmit());
  view.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(() => { if (data) { arrange(); draw(); } }).observe(view);
  window.addEventListener("resize", () => { if (data) { arrange(); draw(); } }); // the height of a shrunk view is its own
  new MutationObserver(() => { if (data) recolour(); })
    .observe(document.documentElement, { attributes: true, attributeFilter: ["data-bs-theme"] });
  window.setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
  pressFromAddress();
  load();
})();
