// The learned functions of a head: the eight activations of the paper's counter, or φ, τ, η and κ of the presence counter.
import { element } from "./element.js";
import { createCurve } from "./curve.js";
import { createSurface } from "./surface.js";

// What f1 to f8 of the paper are applied to.
const ACTIVATIONS = [
  "products of scores, in Ã",
  "distances, in Ã",
  "differences of edges, in Sim",
  "differences of scores, in Sim",
  "differences of distances, in Sim",
  "scores, for the confidence",
  "distances, for the confidence",
  "the confidence",
];

export function createFunctions(component, onBend = null) {
  return component === "counter" ? createActivations(onBend) : createPresenceFunctions();
}

function createActivations(onBend) {
  const curves = ACTIVATIONS.map((name, number) =>
    createCurve({ symbol: `f${number + 1}`, name, onBend: onBend && ((knots) => onBend(number, knots)) }),
  );
  return {
    element: element("div", { class: "curves" }, ...curves.map((curve) => curve.element)),
    update({ activations }) {
      activations.forEach((knots, number) => curves[number].update(knots.map((y, index) => [index / (knots.length - 1), y])));
    },
  };
}

function createPresenceFunctions() {
  const phi = createCurve({ symbol: "φ", name: "presence of a box without neighbours", across: "score", up: "presence" });
  const tau = createCurve({ symbol: "τ", name: "how far the other box may replace this one", across: "lead of the other box", up: "share" });
  const eta = createSurface({ symbol: "η", name: "how much of a box an overlap takes", across: "1 − score" });
  const kappa = createSurface({ symbol: "κ", name: "evidence of a neighbour: orange against, blue for", across: "its score", signed: true });
  return {
    element: element("div", { class: "curves" }, phi.element, tau.element, eta.element, kappa.element),
    update(functions) {
      phi.update(functions.phi);
      tau.update(functions.tau);
      eta.update(functions.eta);
      kappa.update(functions.kappa);
    },
  };
}
