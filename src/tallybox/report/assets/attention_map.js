// The attention on a photo: dark but for the boxes that get attention, each as bright as its weight.
import { svgElement } from "./element.js";

const DARK = 0.78; // opacity of the shade where there is no attention

export function createAttentionMap(image, pointing) {
  const lights = svgElement("g");
  const mask = svgElement("mask", { id: "attention" }, svgElement("rect", { width: "100%", height: "100%", fill: "#fff" }), lights);
  const picture = svgElement("image", { width: image.width, height: image.height, href: image.href });
  const shade = svgElement("rect", { width: "100%", height: "100%", fill: "#000", opacity: DARK, mask: "url(#attention)" });
  const frames = svgElement("g");
  const svg = svgElement("svg", { class: "scene attention", viewBox: `0 0 ${image.width} ${image.height}`, role: "img" }, mask, picture, shade, frames);

  function update({ boxes, scores }) {
    const box = ([x1, y1, x2, y2], attributes) =>
      svgElement("rect", { x: x1, y: y1, width: Math.max(x2 - x1, 0), height: Math.max(y2 - y1, 0), ...attributes });
    // Black parts of a mask let the photo through; overlapping boxes may not make it brighter than the best of them.
    const faintFirst = boxes.map((_, index) => index).sort((one, other) => scores[one] - scores[other]);
    lights.replaceChildren(...faintFirst.map((index) => box(boxes[index], { fill: grey(1 - scores[index]) })));
    frames.replaceChildren(...boxes.map((corners, index) => box(corners, { class: "attended", "data-box": index, opacity: 0.25 + 0.75 * scores[index] })));
    svg.setAttribute("aria-label", `Attention of ${boxes.length} boxes, at most ${Math.max(0, ...scores).toFixed(2)}`);
  }

  pointing.listen((pointed) => {
    for (const frame of frames.children) frame.classList.toggle("pointed", pointed.includes(Number(frame.dataset.box)));
  });
  return { element: svg, update };
}

function grey(share) {
  const level = Math.round(255 * share);
  return `rgb(${level} ${level} ${level})`;
}
