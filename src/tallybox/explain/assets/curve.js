// A function from [0, 1] to [0, 1] as a line; with `onBend`, its knots can be dragged or moved with the arrow keys.
import { element, setAttributes, svgElement } from "./element.js";
import { clamp, short } from "./format.js";

const SIZE = 120;
const EDGE = 16; // around the frame, for the axes

export function createCurve({ symbol, name, across = "input", up = "output", onBend = null }) {
  const line = svgElement("polyline", { class: "line" });
  const knots = svgElement("g");
  const svg = svgElement(
    "svg",
    { viewBox: `0 ${EDGE - 4} ${SIZE + 2 * EDGE} ${SIZE + EDGE + 4}`, role: onBend ? "group" : "img", "aria-label": `${symbol}, ${name}` },
    svgElement("rect", { class: "frame", x: EDGE, y: EDGE, width: SIZE, height: SIZE }),
    svgElement("line", { class: "even", x1: EDGE, y1: EDGE + SIZE, x2: EDGE + SIZE, y2: EDGE }),
    line,
    knots,
    svgElement("text", { class: "axis", x: EDGE, y: SIZE + EDGE + 10 }, "0"),
    svgElement("text", { class: "axis", x: EDGE + SIZE, y: SIZE + EDGE + 10, "text-anchor": "end" }, "1"),
    svgElement("text", { class: "axis", x: EDGE + SIZE / 2, y: SIZE + EDGE + 10, "text-anchor": "middle" }, across),
    svgElement("text", { class: "axis", x: EDGE - 4, y: SIZE + EDGE, "text-anchor": "end" }, "0"),
    svgElement("text", { class: "axis", x: EDGE - 4, y: EDGE + 6, "text-anchor": "end" }, "1"),
    svgElement("text", { class: "axis", transform: `translate(${EDGE - 5} ${EDGE + SIZE / 2}) rotate(-90)`, "text-anchor": "middle" }, up),
  );
  let values = [];

  function update(points) {
    line.setAttribute("points", points.map(([x, y]) => `${left(x)},${top(y)}`).join(" "));
    if (onBend) placeKnots(points.map(([, y]) => y));
  }

  function placeKnots(heights) {
    values = heights;
    const inner = heights.slice(1, -1); // the ends stay at 0 and 1
    if (knots.childElementCount !== inner.length) knots.replaceChildren(...inner.map((_, index) => knot(index + 1)));
    inner.forEach((height, index) => {
      const position = { cx: left((index + 1) / (heights.length - 1)), cy: top(height) };
      setAttributes(knots.children[index], { ...position, "aria-valuenow": height.toFixed(3) });
    });
  }

  function knot(index) {
    const drag = (event) => {
      if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
      const area = svg.getBoundingClientRect();
      const y = EDGE - 4 + ((event.clientY - area.top) / area.height) * (SIZE + EDGE + 4);
      bend(index, 1 - (y - EDGE) / SIZE);
    };
    const press = (event) => {
      const by = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      bend(index, values[index] + by);
    };
    return svgElement("circle", {
      class: "knot",
      r: 3,
      tabindex: 0,
      role: "slider",
      "aria-label": `${symbol} at ${short(index / (values.length - 1))}`,
      "aria-valuemin": 0,
      "aria-valuemax": 1,
      "aria-orientation": "vertical",
      pointerdown: (event) => event.currentTarget.setPointerCapture(event.pointerId),
      pointermove: drag,
      keydown: press,
    });
  }

  function bend(index, height) {
    onBend(bentKnots(values, index, height));
  }

  return {
    element: element("figure", { class: "curve" }, element("figcaption", {}, element("b", {}, symbol), ` ${name}`), svg),
    update,
  };
}

// Move one knot; the others give way as far as they must for the function to keep rising from 0 to 1.
export function bentKnots(knots, index, height) {
  const moved = clamp(height, 0, 1);
  return knots.map((value, knot) => {
    if (knot === 0) return 0;
    if (knot === knots.length - 1) return 1;
    if (knot === index) return moved;
    return knot < index ? Math.min(value, moved) : Math.max(value, moved);
  });
}

function left(x) {
  return EDGE + SIZE * x;
}

function top(y) {
  return EDGE + SIZE * (1 - y);
}
