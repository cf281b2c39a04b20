// A function of an overlap and a score as a small heat map with axes.
import { element } from "./element.js";
import { onColourChange, valueColour } from "./colours.js";
import { short } from "./format.js";

const PIXELS = 180;

export function createSurface({ symbol, name, across, signed = false }) {
  const canvas = element("canvas", { width: PIXELS, height: PIXELS, role: "img", "aria-label": `${symbol}, ${name}` });
  const readout = element("p", { class: "readout" });
  const figure = element(
    "figure",
    { class: "map surface" },
    element("figcaption", {}, element("b", {}, symbol), ` ${name}`),
    element(
      "div",
      { class: "plane" },
      element("span", { class: "up" }, element("span", {}, "1"), element("span", {}, "overlap"), element("span", {}, "0")),
      canvas,
      element("span", { class: "across" }, element("span", {}, "0"), element("span", {}, across), element("span", {}, "1")),
    ),
    readout,
  );
  let table = [];
  let largest = 1;

  function update(values) {
    table = values;
    largest = Math.max(signed ? 0.5 : 1, ...table.flat().map(Math.abs));
    draw();
  }

  function draw() {
    const context = canvas.getContext("2d");
    const step = 3;
    for (let y = 0; y < PIXELS; y += step) {
      for (let x = 0; x < PIXELS; x += step) {
        context.fillStyle = valueColour(at(x / PIXELS, 1 - y / PIXELS) / largest, signed);
        context.fillRect(x, y, step, step);
      }
    }
  }

  function at(across01, up01) {
    if (!table.length) return 0;
    const cells = table.length - 1;
    const [row, column] = [up01 * cells, across01 * cells];
    const [i, j] = [row, column].map((position) => Math.min(Math.floor(position), cells - 1));
    const [v, u] = [row - i, column - j];
    const upper = table[i][j] * (1 - u) + table[i][j + 1] * u;
    const lower = table[i + 1][j] * (1 - u) + table[i + 1][j + 1] * u;
    return upper * (1 - v) + lower * v;
  }

  canvas.addEventListener("pointermove", (event) => {
    const area = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - area.left) / area.width, 1 - (event.clientY - area.top) / area.height];
    readout.textContent = `overlap ${short(y)}: ${short(at(x, y))}`;
  });
  canvas.addEventListener("pointerleave", () => (readout.textContent = ""));
  onColourChange(draw);
  return { element: figure, update };
}
