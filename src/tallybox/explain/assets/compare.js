// What simpler ways to count would say.
import { element } from "./element.js";
import { short } from "./format.js";

export function createCompare() {
  const list = element("dl", { class: "compare" });
  const entry = (name, value, key) => element("div", {}, element("dt", {}, name), element("dd", { "data-baseline": key }, value));
  return {
    element: list,
    update({ sum, nms, iou_threshold, score_threshold }, scored = "score") {
      list.replaceChildren(
        entry(scored === "score" ? "adding up scores" : `adding up ${scored}`, short(sum), "sum"),
        entry(`NMS, IoU ${short(iou_threshold)}, ${scored} ≥ ${short(score_threshold)}`, String(nms), "nms"),
      );
    },
  };
}
