// Draws every .chart[data-figure] from the JSON element of that id, in the colours of the theme.
(function () {
  "use strict";
  const root = document.documentElement;
  const NARROW = 500; // pixels; dates below the axis would run into each other

  function colours() {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    return { text: of("--gc-text"), grid: of("--gc-line"), paper: of("--gc-surface") };
  }

  function themed(layout, width) {
    const c = colours();
    const axis = { gridcolor: c.grid, linecolor: c.grid, zerolinecolor: c.grid, automargin: true };
    return Object.assign({}, layout, {
      paper_bgcolor: c.paper,
      plot_bgcolor: c.paper,
      font: { color: c.text, family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { bgcolor: c.paper, bordercolor: c.grid, font: { color: c.text } },
      xaxis: Object.assign({}, layout.xaxis, axis, width < NARROW ? { nticks: 4 } : {}),
      yaxis: Object.assign({}, layout.yaxis, axis),
    });
  }

  // Traces name their colour in `meta` (account-used, member-1, …); the style sheet has it.
  function coloured(traces) {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    return traces.map((trace) => {
      const pattern = Object.assign({}, trace.marker.pattern, { fgcolor: of("--gc-pattern") });
      const marker = Object.assign({}, trace.marker, { color: of("--gc-" + trace.meta), pattern: pattern });
      return Object.assign({}, trace, { marker: marker });
    });
  }

  function draw(box) {
    const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent);
    const options = { displayModeBar: false, responsive: true };
    window.Plotly.react(box, coloured(figure.data), themed(figure.layout, box.clientWidth), options)
      .then(() => { box.dataset.drawn = "true"; });
  }

  function drawAll(part) {
    part.querySelectorAll(".chart[data-figure]:not([data-drawn])").forEach(draw);
  }

  document.addEventListener("htmx:load", (event) => drawAll(event.detail.elt.parentNode || document));
  new MutationObserver(() => {
    document.querySelectorAll(".chart[data-drawn]").forEach(draw);
  }).observe(root, { attributes: true, attributeFilter: ["data-bs-theme"] });
})();
