// The matrices of a head: the paper's A, D, Ã, Sim and C, or presence counting's overlap, evidence and suppression.
import { element } from "./element.js";
import { colourScale, createHeatmap } from "./heatmap.js";

const MATRICES = {
  paper: [
    { key: "relevance", symbol: "A", name: "relevance" },
    { key: "distance", symbol: "D", name: "distance" },
    { key: "deduplicated", symbol: "Ã", name: "deduplicated edges" },
    { key: "similarity", symbol: "Sim", name: "similarity" },
    { key: "count_matrix", symbol: "C", name: "count matrix" },
  ],
  presence: [
    { key: "overlap", symbol: "IoU", name: "overlap" },
    { key: "suppression", symbol: "s", name: "suppression: how far the column's box stands for the row's" },
    { key: "evidence", symbol: "κ", name: "evidence of the column's box for the row's (orange: against)", signed: true },
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
        { class: `maps maps-${maps.length + (picture ? 1 : 0)}` },
        ...(picture ? [element("figure", { class: "map" }, element("figcaption", {}, element("b", {}, "The boxes")), picture)] : []),
        ...maps.map(({ map }) => map.element),
      ),
    ),
    update({ trace, indices }) {
      for (const { key, map } of maps) map.update(trace[key], indices);
    },
  };
}
