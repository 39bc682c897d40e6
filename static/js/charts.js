// Draws every .chart[data-figure] from the JSON element of that id, in the colours of the theme. A spot of a heat map
// leads where the same number of its table, data-table, leads.
(function () {
  "use strict";
  const root = document.documentElement;
  const NARROW = 500; // pixels; dates below the axis would run into each other
  const HEAT = ["heat-0", "heat-1", "heat-2", "heat-3", "heat-4"];

  // The colour of that name in the style sheets.
  function palette() {
    const style = getComputedStyle(root);
    return (name) => style.getPropertyValue("--gc-" + name).trim();
  }

  function themed(layout, width) {
    const of = palette();
    const axis = { gridcolor: of("line"), linecolor: of("line"), zerolinecolor: of("line"), automargin: true };
    const axes = {};
    for (const name of ["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d+$/.test(key))]) {
      const few = name.startsWith("x") && width < NARROW ? { nticks: 4 } : {};
      axes[name] = Object.assign({}, layout[name], axis, few);
    }
    return Object.assign({}, layout, axes, {
      paper_bgcolor: of("surface"),
      plot_bgcolor: of("surface"),
      font: { color: of("text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { bgcolor: of("surface"), bordercolor: of("line"), font: { color: of("text") } },
      shapes: (layout.shapes || []).map((shape) => Object.assign({}, shape, {
        fillcolor: of(shape.name),
        line: Object.assign({}, shape.line, { color: of(shape.name) }),
      })),
    });
  }

  // Traces name their colour in `meta` (account-used, member-1, …); the style sheet has it.
  function coloured(traces) {
    const of = palette();
    return traces.map((trace) => {
      if (trace.type === "heatmap") {
        return Object.assign({}, trace, { colorscale: HEAT.map((name, at) => [at / (HEAT.length - 1), of(name)]) });
      }
      if (trace.mode === "lines") {
        const colour = of(trace.meta);
        const fill = trace.fill === "toself" ? { fillcolor: colour + "33" } : {}; // #rrggbb, a fifth of it
        return Object.assign({}, trace, { line: Object.assign({}, trace.line, { color: colour }) }, fill);
      }
      const marker = Object.assign({}, trace.marker, { color: of(trace.meta) });
      if (marker.pattern) marker.pattern = Object.assign({}, marker.pattern, { fgcolor: of("pattern") });
      return Object.assign({}, trace, { marker: marker });
    });
  }

  // Rows of the heat map are hours and columns days; in the table it is the other way round, behind a row of titles.
  function follow(event, table) {
    const spot = event.points.find((point) => point.data.type === "heatmap");
    if (!spot) return;
    const [hour, day] = spot.pointIndex;
    const link = table.tBodies[0].rows[day].cells[hour + 1].querySelector("a");
    if (link) link.click();
  }

  function drawn(box) {
    const table = document.getElementById(box.dataset.table);
    if (table && !box.dataset.drawn) box.on("plotly_click", (event) => follow(event, table));
    box.dataset.drawn = "true";
  }

  function draw(box) {
    const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
    const options = { displayModeBar: false, responsive: true };
    window.Plotly.react(box, coloured(figure.data), themed(figure.layout, box.clientWidth), options)
      .then(() => drawn(box));
  }

  function drawAll(part) {
    part.querySelectorAll(".chart[data-figure]:not([data-drawn])").forEach(draw);
  }

  document.addEventListener("htmx:load", (event) => drawAll(event.detail.elt.parentNode || document));
  new MutationObserver(() => {
    document.querySelectorAll(".chart[data-drawn]").forEach(draw);
  }).observe(root, { attributes: true, attributeFilter: ["data-bs-theme"] });
})();
