// Three drawn cats behind the boxes of the first scene.
import { svgElement } from "./element.js";

const CATS = [
  { at: [120, 120], fur: "#c98a4b", stripes: "#8a5a2b" },
  { at: [370, 95], fur: "#3a3a40", stripes: null },
  { at: [610, 130], fur: "#e9e6df", stripes: null },
];

export function drawCats({ element: canvas, backdrop }, isShown) {
  canvas.classList.toggle("with-cats", isShown);
  if (isShown !== backdrop.hasChildNodes()) backdrop.replaceChildren(...(isShown ? CATS.map(cat) : []));
}

function cat({ at: [x, y], fur, stripes }) {
  const shape = (tag, attributes) => svgElement(tag, { fill: fur, stroke: "#55504a", "stroke-width": 2, ...attributes });
  const ear = (side) => shape("path", { d: `M${side * 30} -38 l${side * 6} -26 l${side * -26} 14 z` });
  const eye = (side) => svgElement("circle", { cx: side * 12, cy: -28, r: 3.4, fill: fur === "#3a3a40" ? "#e8d44d" : "#222" });
  const stripe = (offset) => svgElement("path", { d: `M${offset} 6 q4 14 0 28`, stroke: stripes, "stroke-width": 5, fill: "none", "stroke-linecap": "round" });
  return svgElement(
    "g",
    { transform: `translate(${x} ${y + 8})` },
    shape("path", { d: "M52 34 q38 -4 26 -44 q-3 -10 -10 -4 q10 34 -22 34 z" }),
    shape("ellipse", { cx: 0, cy: 22, rx: 60, ry: 32 }),
    ...(stripes ? [-30, -8, 14, 36].map(stripe) : []),
    ear(-1),
    ear(1),
    shape("ellipse", { cx: 0, cy: -24, rx: 36, ry: 28 }),
    eye(-1),
    eye(1),
    svgElement("path", { d: "M-4 -18 h8 l-4 5 z", fill: "#c77" }),
  );
}
