"use strict";
// Unpacks plotly.js, and draws every figure of the page with the ink of the current colour scheme, and again when the
// scheme changes.
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink-soft").trim();
    const grid = style.getPropertyValue("--grid").trim();
    const paper = style.getPropertyValue("--card").trim();
    const axis = { gridcolor: grid, linecolor: grid, tickcolor: grid, automargin: false };
    return Object.assign({}, layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, size: 12, family: style.getPropertyValue("--font").trim() },
      hoverlabel: { bgcolor: paper, bordercolor: grid, font: { color: ink }, align: "left" },
      xaxis: Object.assign({}, axis, layout.xaxis),
      yaxis: Object.assign({}, axis, layout.yaxis),
    });
  }

  function draw() {
    for (const figure of document.querySelectorAll(".figure")) {
      const spec = JSON.parse(figure.querySelector("script").textContent);
      Plotly.react(figure.querySelector(".plot"), spec.data, themed(spec.layout), {
        responsive: true,
        displaylogo: false,
        displayModeBar: false,
      });
    }
  }

  async function unpacked(packed) {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  const packed = document.getElementById("plotly");
  if (packed) {
    unpacked(packed.textContent.trim()).then((library) => {
      // The page's policy admits a script of just this text, by its hash.
      const script = document.createElement("script");
      script.textContent = library;
      document.head.append(script);
      draw();
      dark.addEventListener("change", draw);
    });
  }
})();
