// The matrices of a view: the paper's A, D, Ã, Sim and C, or presence counting's overlap, evidence and suppression.
import { element } from "./element.js";
import { colourScale, createHeatmap } from "./heatmap.js";

const MATRICES = {
  paper: [
    { key: "relevance", symbol: "A", name: "relevance of a pair" },
    { key: "distance", symbol: "D", name: "distance of a pair" },
    { key: "deduplicated", symbol: "Ã", name: "edges between objects" },
    { key: "similarity", symbol: "Sim", name: "how alike" },
    { key: "count_matrix", symbol: "C", name: "edges that count" },
  ],
  presence: [
    { key: "overlap", symbol: "IoU", name: "overlap" },
    { key: "suppression", symbol: "s", name: "how far the column's box stands for the row's" },
    { key: "evidence", symbol: "κ", name: "what the column's box says about the row's (orange: against)", signed: true },
  ],
};

// ``picture`` is shown beside the matrices, where the boxes of a pair would be out of sight.
export function createMatrices(component, pointing, picture = null) {
  const maps = MATRICES[component].map(({ key, ...options }) => ({ key, map: createHeatmap({ ...options, pointing }) }));
  return {
    element: element(
      "div",
      {},
      element("p", { class: "quiet small" }, "Each row and each column is a box. Point at a cell to see its two boxes, at a box to see its row and column."),
      colourScale(),
      element(
        "div",
        { class: "maps" },
        ...(picture ? [element("figure", { class: "map" }, element("figcaption", {}, element("b", {}, "The boxes")), picture)] : []),
        ...maps.map(({ map }) => map.element),
      ),
    ),
    update(view) {
      for (const { key, map } of maps) map.update(view.trace[key], view.indices);
    },
  };
}
