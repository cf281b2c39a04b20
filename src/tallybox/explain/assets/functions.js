// The learned functions of a head: the paper's eight activations, or presence counting's φ, τ, η and κ.
import { element } from "./element.js";
import { createCurve } from "./curve.js";
import { createSurface } from "./surface.js";

// The names of `tallybox.counter.reference.Activations`, which a test compares.
const ACTIVATIONS = [
  "edge of relevance",
  "edge of distance",
  "likeness",
  "row of relevance",
  "row of distance",
  "certainty of attention",
  "certainty of distance",
  "confidence",
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
  const phi = createCurve({ symbol: "φ", name: "what a score is worth when no other box is near", across: "score" });
  const tau = createCurve({ symbol: "τ", name: "how far the other box may stand for this one", across: "other box ahead →" });
  const eta = createSurface({ symbol: "η", name: "how much of a box an overlap takes", across: "1 − score, 0 to 1" });
  const kappa = createSurface({ symbol: "κ", name: "evidence of a neighbour: orange against, blue for", across: "its score, 0 to 1", signed: true });
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
