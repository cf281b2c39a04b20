// A matrix as a heat map. The cell under the pointer, or chosen with the arrow keys, points at its two boxes.
import { element } from "./element.js";
import { inkOn, onColourChange, valueColour } from "./colours.js";
import { clamp, short } from "./format.js";

const SIDE = 480; // pixels of the canvas; the page scales it
const FONT = 11; // pixels on the screen
const MAX_VALUES = 5; // rows of a matrix that shows its values

export function createHeatmap({ symbol, name, signed = false, pointing }) {
  const canvas = element("canvas", { width: SIDE, height: SIDE, tabindex: 0, role: "img" });
  const readout = element("p", { class: "readout", "aria-live": "polite" });
  const figure = element("figure", { class: "map" }, element("figcaption", {}, element("b", {}, symbol), ` ${name}`), canvas, readout);
  let matrix = [];
  let boxes = []; // which box each row is
  let largest = 1;
  let unit = 1; // pixels of the canvas for one of the screen
  let margin = 0; // for the numbers of boxes, at the left and at the top

  function update(values, indices) {
    matrix = values;
    boxes = indices;
    largest = Math.max(1, ...matrix.flat().map(Math.abs));
    canvas.setAttribute("aria-label", `${symbol}, ${name}: ${matrix.length} by ${matrix.length}; arrow keys choose a pair`);
    draw();
  }

  function draw() {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, SIDE, SIDE);
    if (!matrix.length) return;
    unit = SIDE / (canvas.clientWidth || SIDE);
    margin = 1.6 * FONT * unit;
    const cell = (SIDE - margin) / matrix.length;
    const gap = matrix.length > 24 ? 0 : unit;
    Object.assign(context, { font: `${FONT * unit}px system-ui, sans-serif`, textAlign: "center", textBaseline: "middle" });
    matrix.forEach((row, i) =>
      row.forEach((value, j) => {
        const [x, y, colour] = [margin + j * cell, margin + i * cell, valueColour(value / largest, signed)];
        context.fillStyle = colour;
        context.fillRect(x, y, cell - gap, cell - gap);
        if (matrix.length > MAX_VALUES) return;
        context.fillStyle = inkOn(colour);
        context.fillText(short(Math.round(100 * value) / 100), x + cell / 2, y + cell / 2);
      }),
    );
    drawNumbers(context, cell);
    outline(context, cell);
    say();
  }

  function drawNumbers(context, cell) {
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--quiet");
    const step = Math.ceil((1.8 * FONT * unit) / cell);
    boxes.forEach((box, index) => {
      if (index % step) return;
      const middle = margin + (index + 0.5) * cell;
      context.fillText(box + 1, middle, margin / 2);
      context.fillText(box + 1, margin / 2, middle);
    });
  }

  function outline(context, cell) {
    const [row, column] = pair();
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--warn");
    context.lineWidth = 2 * unit;
    const frame = (x, y, width, height) => context.strokeRect(margin + x + 1, margin + y + 1, width - 3, height - 3);
    if (row < 0 && column < 0) return;
    if (pointing.boxes().length === 1) {
      frame(0, row * cell, SIDE - margin, cell);
      frame(row * cell, 0, cell, SIDE - margin);
    } else if (row >= 0 && column >= 0) {
      frame(column * cell, row * cell, cell, cell);
    }
  }

  function pair() {
    const [rowBox, columnBox = rowBox] = pointing.boxes();
    return [boxes.indexOf(rowBox), boxes.indexOf(columnBox)];
  }

  function say() {
    const [row, column] = pair();
    const isPair = pointing.boxes().length === 2 && row >= 0 && column >= 0;
    readout.textContent = isPair ? `boxes ${boxes[row] + 1}, ${boxes[column] + 1}: ${short(matrix[row][column], 3)}` : "";
  }

  function choose(event) {
    if (!matrix.length) return;
    const area = canvas.getBoundingClientRect();
    const at = (offset, size) => clamp(Math.floor(((SIDE * offset) / size - margin) / (SIDE - margin) * matrix.length), 0, matrix.length - 1);
    pointing.at(boxes[at(event.clientY - area.top, area.height)], boxes[at(event.clientX - area.left, area.width)]);
  }

  function step(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in moves) || !matrix.length) return;
    event.preventDefault();
    const [row, column] = pair().map((index, axis) => (index < 0 ? 0 : clamp(index + moves[event.key][axis], 0, matrix.length - 1)));
    pointing.at(boxes[row], boxes[column]);
  }

  canvas.addEventListener("pointermove", choose);
  canvas.addEventListener("pointerdown", choose);
  canvas.addEventListener("pointerleave", () => pointing.at());
  canvas.addEventListener("keydown", step);
  canvas.addEventListener("blur", () => pointing.at());
  pointing.listen(draw);
  onColourChange(draw);
  new ResizeObserver(draw).observe(canvas);
  return { element: figure, update };
}

export function colourScale(signed = false) {
  const canvas = element("canvas", { width: 120, height: 9, "aria-hidden": "true" });
  const draw = () => {
    const context = canvas.getContext("2d");
    for (let x = 0; x < 120; x++) {
      context.fillStyle = valueColour(signed ? x / 60 - 1 : x / 120, signed);
      context.fillRect(x, 0, 1, 9);
    }
  };
  draw();
  onColourChange(draw);
  return element("p", { class: "scale" }, signed ? "against" : "0", canvas, signed ? "for" : "1");
}
