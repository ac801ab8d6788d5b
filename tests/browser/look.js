// What the tests ask of JupyterLab's page. `window.jupyterapp` is JupyterLab itself (LabApp.expose_app_in_browser).
window.look = {
  panel: () => window.jupyterapp.shell.currentWidget,

  // Cells are drawn only near the visible part of the page.
  cell: (number) => window.look.panel().content.widgets[number],

  // A run that is asked for before the kernel answers is silently dropped.
  ready() {
    const session = window.jupyterapp && window.look.panel() && window.look.panel().sessionContext;
    const kernel = session && session.session && session.session.kernel;
    return Boolean(kernel && kernel.connectionStatus === "connected" && kernel.status === "idle");
  },

  run() {
    window.look.done = "";
    const done = window.jupyterapp.commands.execute("notebook:run-all-cells");
    done.then(() => (window.look.done = "yes"), (error) => (window.look.done = String(error)));
  },

  theme: (name) => window.jupyterapp.commands.execute("apputils:change-theme", { theme: name }),

  scroll: (number) => window.look.panel().content.scrollToItem(number, "start"),

  // One row a cell: how many figures its outputs hold, where each of the course's widgets has one, and its errors.
  outputs() {
    const words = (text) => (Array.isArray(text) ? text.join("") : text || "");
    return window.look.panel().content.widgets.map((cell) => {
      const outputs = cell.model.type === "code" ? cell.model.sharedModel.getOutputs() : [];
      const figures = outputs.map(({ data = {} }) => {
        if ("application/vnd.plotly.v1+json" in data) return 1;
        const widget = "application/vnd.jupyter.widget-view+json" in data;
        return widget && /^VBox\(|FigureInPlace/.test(words(data["text/plain"])) ? 1 : 0; // no progress bar
      });
      return {
        code: cell.model.type === "code" && cell.model.sharedModel.getSource().trim() !== "",
        ran: Boolean(cell.model.executionCount),
        figures: figures.reduce((sum, count) => sum + count, 0),
        errors: outputs.filter((one) => one.output_type === "error").map((one) => `${one.ename}: ${one.evalue}`),
      };
    });
  },

  graphs: (box) => [...box.querySelectorAll(".js-plotly-plot")],

  // Of a cell's figures: the heights of the element and of the drawing in it, and whether both are as wide.
  sizes(number) {
    return window.look.graphs(window.look.cell(number).node).map((graph) => {
      const [place, drawing] = [graph, graph.querySelector(".main-svg")].map((one) => one.getBoundingClientRect());
      return [Math.round(place.height), Math.round(drawing.height), Math.abs(place.width - drawing.width) < 2];
    });
  },

  // How many marks a figure has drawn: of its traces, its pictures, and its shapes.
  marks(graph) {
    const drawn = ":is(.cartesianlayer, .pielayer, .treemaplayer, .sankey) path, .table text, image, .shapelayer path";
    const inside = [...graph.querySelectorAll(`.main-svg :is(${drawn})`)];
    return inside.filter((mark) => mark.tagName !== "path" || mark.getAttribute("d")).length;
  },

  // Changes when a reader would see a change: of texts, of lines and bars, of pictures, of colours.
  signature(box) {
    const say = (mark) =>
      [mark.getAttribute("d"), mark.style.fill, (mark.getAttribute("href") || "").slice(-200), mark.textContent];
    const marks = window.look.graphs(box).map((graph) => graph.querySelectorAll(".main-svg :is(text, path, image)"));
    const drawn = marks.every((some) => some.length);
    return drawn ? JSON.stringify(marks.map((some) => [...some].map(say))) : "";
  },

  // The texts of a figure, with their colours and places in the window.
  texts(graph) {
    const alone = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    return [...graph.querySelectorAll(".main-svg :is(text, tspan)")].filter(alone).map((node) => {
      const { fill, fillOpacity, visibility } = getComputedStyle(node);
      let seen = visibility === "hidden" ? 0 : Number(fillOpacity);
      for (let up = node; up !== graph; up = up.parentElement) seen *= Number(getComputedStyle(up).opacity);
      const { left, top, right, bottom } = node.getBoundingClientRect();
      return { text: node.textContent, fill, seen, place: [left, top, right, bottom] };
    });
  },

  // What is wider than the place that JupyterLab gives it, but for tables, which JupyterLab scrolls there.
  wide(cell) {
    const kinds = ".jp-OutputArea-output, .jp-MarkdownOutput, .js-plotly-plot, .widget-label, .widget-readout";
    const parts = cell.node.querySelectorAll(kinds);
    return [...parts]
      .filter((part) => part.offsetParent && !part.querySelector("table") && part.scrollWidth > part.clientWidth + 1)
      .map((part) => `${part.scrollWidth} of ${part.clientWidth} pixels: ${part.textContent.trim().slice(0, 60)}`);
  },

  // The next visible control of a widget that was not moved yet, and its kind; null if all were moved.
  next(cell) {
    const kinds = {
      slider: ".noUi-target",
      menu: "select",
      tick: "input[type=checkbox]",
      buttons: ".widget-toggle-buttons",
      tabs: ".lm-TabBar",
      unknown: "input:not([type=checkbox]), textarea, button:not(.widget-toggle-button)",
    };
    for (const [kind, selector] of Object.entries(kinds))
      for (const control of cell.querySelectorAll(`.jp-OutputArea :is(${selector})`)) {
        if (!control.offsetParent || control.dataset.moved || control.closest(".js-plotly-plot")) continue;
        control.dataset.moved = kind;
        const label = control.closest(".jupyter-widgets:has(.widget-label), .widget-checkbox");
        return { kind, control, name: label ? label.textContent.trim().slice(0, 40) : kind };
      }
    return null;
  },
};
