// The answers of a VQA model, and its attention.
import { element, svgElement } from "./element.js";
import { percent } from "./format.js";

const DARK = 0.78; // opacity of the shade where there is no attention

export function answerTable(answers) {
  const rows = answers.map(([answer, probability]) => {
    const bar = element("i");
    bar.style.width = `${100 * probability}%`;
    return element("tr", {}, element("th", { scope: "row" }, answer), element("td", {}, percent(probability)), element("td", { class: "share" }, bar));
  });
  return element("table", { class: "answers" }, element("tbody", {}, ...rows));
}

// The photo is dark but for the boxes that get attention, each as bright as its weight.
export function attentionMap({ width, height, href }, { boxes, scores }, pointing) {
  const rectangle = ([x1, y1, x2, y2], attributes) =>
    svgElement("rect", { x: x1, y: y1, width: Math.max(x2 - x1, 0), height: Math.max(y2 - y1, 0), ...attributes });
  // Black parts of a mask let the photo through; overlapping boxes may not make it brighter than the best of them.
  const faintFirst = boxes.map((_, box) => box).sort((a, b) => scores[a] - scores[b]);
  const lights = faintFirst.map((box) => rectangle(boxes[box], { fill: grey(1 - scores[box]) }));
  const frames = svgElement("g", {}, ...boxes.map((corners, box) => rectangle(corners, { class: "attended", "data-box": box, opacity: 0.25 + 0.75 * scores[box] })));
  pointing.mark(frames);
  return svgElement(
    "svg",
    { class: "scene attention", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Attention of ${boxes.length} boxes, at most ${Math.max(0, ...scores).toFixed(2)}` },
    svgElement("mask", { id: "attention" }, svgElement("rect", { width: "100%", height: "100%", fill: "#fff" }), ...lights),
    svgElement("image", { width, height, href }),
    svgElement("rect", { width: "100%", height: "100%", fill: "#000", opacity: DARK, mask: "url(#attention)" }),
    frames,
  );
}

function grey(share) {
  const level = Math.round(255 * share);
  return `rgb(${level} ${level} ${level})`;
}
