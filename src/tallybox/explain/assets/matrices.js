// The matrices of a head: A, D, Ã, Sim and C of the paper's counter, or overlap, suppression and evidence.
import { element } from "./element.js";
import { colourScale, createHeatmap } from "./heatmap.js";
import { short } from "./format.js";

const MATRICES = {
  counter: [
    { key: "relevance", symbol: "A", name: "product of scores" },
    { key: "distance", symbol: "D", name: "distance" },
    { key: "deduplicated", symbol: "Ã", name: "edges between objects" },
    { key: "similarity", symbol: "Sim", name: "similarity" },
    { key: "count_matrix", symbol: "C", name: "edges that count" },
  ],
  presence: [
    { key: "overlap", symbol: "IoU", name: "overlap" },
    { key: "suppression", symbol: "s", name: "how far the column's box replaces the row's" },
    { key: "evidence", symbol: "κ", name: "evidence of the column's box (orange: against)", signed: true },
  ],
};

// ``picture`` is shown with the matrices, if the boxes of a pair would be out of sight.
export function createMatrices(component, pointing, picture = null) {
  const maps = MATRICES[component].map(({ key, ...options }) => ({ key, map: createHeatmap({ ...options, pointing }) }));
  const result = element("p", { class: "quiet small" });
  return {
    element: element(
      "div",
      {},
      element("p", { class: "quiet small" }, "Rows and columns are boxes. Point at a cell to see its two boxes, at a box to see its row and column."),
      element("div", { class: "scales" }, colourScale(), ...(component === "presence" ? [colourScale(true)] : [])),
      element(
        "div",
        { class: `maps maps-${maps.length + (picture ? 1 : 0)}` },
        ...(picture ? [element("figure", { class: "map" }, element("figcaption", {}, element("b", {}, "Boxes")), picture)] : []),
        ...maps.map(({ map }) => map.element),
      ),
      result,
    ),
    // Rows come in the order of the boxes' numbers.
    update({ trace, indices, low = null }) {
      const order = indices.map((_, row) => row).sort((a, b) => indices[a] - indices[b]);
      const boxes = order.map((row) => indices[row]);
      result.hidden = low !== null; // an estimate combines several models
      const sum = short(trace.count_matrix?.flat().reduce((total, edge) => total + edge, 0) ?? 0);
      result.textContent = component === "counter" ? `Count: square root of the sum of C = √${sum} = ${short(trace.count, 3)}` : `Count: sum of the presences = ${short(trace.count, 3)}`;
      for (const { key, map } of maps) map.update(order.map((row) => order.map((column) => trace[key][row][column])), boxes);
    },
  };
}
