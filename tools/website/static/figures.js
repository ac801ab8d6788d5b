// Draws the figures of a page with Plotly, which is fetched once, from the site itself. Works without a server.
"use strict";

const HERE = document.currentScript.src.replace(/figures\.js.*$/, "");

const PAPER = 660; // pixels that fit a page of paper

// Plotly is 5 megabytes: only pages with figures load it.
const plotly = () =>
  (plotly.loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    Object.assign(script, { src: `${HERE}plotly.min.js`, onload: () => done(window.Plotly), onerror: failed });
    document.head.append(script);
  }));

// A figure's own size may be too wide for the page. It then shrinks, and keeps its proportions.
function fitted({ data, layout }, width) {
  const fits = { ...layout, template: window.labkitTemplate };
  if (layout.width > width) {
    Object.assign(fits, { width, height: Math.round((layout.height * width) / layout.width) });
  }
  return { data, layout: fits };
}

// Draws a figure into a place, over the figure that is there.
async function draw(figure, place) {
  const { react } = await plotly();
  const { data, layout } = fitted(figure, place.clientWidth);
  await react(place, data, layout, { responsive: true, displaylogo: false });
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// One figure of several, by the values of the controls above it.
async function choose(chooser) {
  const controls = [...chooser.querySelectorAll("input, select")];
  const figures = await unpacked(chooser.querySelector("script").textContent);
  const shown = chooser.querySelector(".chosen");
  const place = shown.appendChild(document.createElement("div"));
  const show = () => {
    for (const control of controls) {
      const { values } = control.dataset;
      if (values) control.nextElementSibling.value = JSON.parse(values)[control.value];
    }
    const figure = structuredClone(figures[controls.map((control) => control.value).join(",")]);
    shown.ariaLabel = figure.words;
    return draw(figure, place);
  };
  for (const control of controls) control.addEventListener("input", show);
  await show();
}

// One after the other, so that the page can be read and scrolled meanwhile.
async function drawAll() {
  for (const figure of document.querySelectorAll("figure.plotly-figure")) {
    const place = figure.appendChild(document.createElement("div"));
    await draw(JSON.parse(figure.querySelector("script").textContent), place);
    await new Promise((done) => setTimeout(done));
  }
  for (const chooser of document.querySelectorAll(".chooser")) await choose(chooser);
  document.documentElement.dataset.figures = "drawn";
}

// Paper has another width than the screen.
const onScreen = new Map();
window.addEventListener("beforeprint", () => {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    if (plot.clientWidth <= PAPER) continue;
    onScreen.set(plot, plot.layout.width ?? null);
    window.Plotly.relayout(plot, { width: PAPER });
  }
});
window.addEventListener("afterprint", () => {
  for (const [plot, width] of onScreen) window.Plotly.relayout(plot, { width });
  onScreen.clear();
});
document.addEventListener("DOMContentLoaded", drawAll);
