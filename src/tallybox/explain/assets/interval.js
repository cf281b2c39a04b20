// A count on a scale from 0: its 90 % interval as a bar, the count as a dot, and the true count as a line if it is known.
import { element, setAttributes, svgElement } from "./element.js";

const WIDTH = 300;
const HEIGHT = 18;
const PAD = 6;

export function intervalBar({ count, low = null, high = null, truth = null, max, colour = null, label }) {
  const x = (value) => PAD + ((WIDTH - 2 * PAD) * Math.min(value, max)) / max;
  const svg = svgElement(
    "svg",
    { class: "interval", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svgElement("line", { class: "rail", x1: PAD, x2: WIDTH - PAD, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
  );
  const coloured = (shape) => {
    if (colour) shape.style.stroke = colour;
    return shape;
  };
  if (low !== null) svg.append(coloured(svgElement("line", { class: "span", x1: x(low), x2: Math.max(x(high), x(low) + 0.1), y1: HEIGHT / 2, y2: HEIGHT / 2 })));
  svg.append(coloured(svgElement("line", { class: "dot", x1: x(count), x2: x(count) + 0.01, y1: HEIGHT / 2, y2: HEIGHT / 2 })));
  if (truth !== null) svg.append(svgElement("line", { class: "truth", x1: x(truth), x2: x(truth), y1: 1, y2: HEIGHT - 1 }));
  setAttributes(svg, { "data-count": count });
  return svg;
}

// The ends of a scale, under the bars that share it.
export function scaleAxis(max) {
  return element("div", { class: "scale-axis", "aria-hidden": "true" }, element("span", {}, "0"), element("span", {}, String(max)));
}

// The end of a scale that several counts share: a little more than the largest.
export function scaleEnd(...values) {
  return Math.max(4, Math.ceil(1.1 * Math.max(...values.filter((value) => value !== null && value !== undefined))));
}
