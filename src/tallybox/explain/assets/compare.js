// Three methods on one scale: the sum of the scores, NMS, and tallybox.
import { element } from "./element.js";
import { range, short } from "./format.js";
import { intervalBar, scaleAxis, scaleEnd } from "./interval.js";

export function createCompare() {
  const rows = element("div", { class: "compare" });

  function update({ count, low = null, high = null, baselines, truth = null, colour = null, name = "tallybox", digits = 1 }) {
    rows.hidden = !baselines;
    if (!baselines) return;
    const { sum, nms, iou_threshold, score_threshold } = baselines;
    const max = scaleEnd(count, high, sum, nms, truth);
    const row = (key, text, value, title, bar = {}) =>
      element(
        "div",
        { class: "method", "data-method": key, title },
        element("span", {}, text),
        element("b", { class: "number" }, short(value, digits)),
        intervalBar({ count: value, truth, max, label: `${text}: ${short(value, digits)}`, ...bar }),
      );
    rows.replaceChildren(
      row("sum", "add up the scores", sum, ""),
      row("nms", "delete overlaps (NMS)", nms, `NMS at IoU ${short(iou_threshold)}, score at least ${short(score_threshold)}`),
      row("tallybox", name, count, "", low === null ? { colour } : { low, high, colour, label: `${name}: ${short(count, digits)}, 90 %: ${range(low, high)}` }),
      element("div", { class: "method" }, element("span", { class: "small quiet" }, ...(truth === null ? [] : [element("span", { class: "truth-key" }), `true count: ${truth}`])), element("span"), scaleAxis(max)),
    );
  }

  return { element: rows, update };
}
