// Everything that a counting shows on the explorer page: the count, what simpler ways say, matrices, functions, steps.
import { card, element } from "./element.js";
import { createBars } from "./bars.js";
import { createCompare } from "./compare.js";
import { createFunctions } from "./functions.js";
import { createMatrices } from "./matrices.js";
import { createScene } from "./scene.js";
import { createSteps } from "./steps.js";
import { short } from "./format.js";

export function createPanels(pointing, { onBend, onUnbend, onThresholds }) {
  const count = element("span", { class: "count", "aria-live": "polite" });
  const live = element("p", { class: "live", "aria-hidden": "true", hidden: "" }); // over the page where the count is above it
  const summary = element("p", { class: "quiet" });
  const problem = element("p", { class: "problem", role: "alert" });
  const [bars, compare, steps] = [createBars(), createCompare(), createSteps()];
  const barsTitle = element("h2");
  const thresholds = createThresholds(onThresholds);
  const unbend = element("button", { type: "button", click: onUnbend }, "Straighten");
  const parts = {};
  for (const component of ["counter", "presence"]) {
    const title = component === "counter" ? "The eight activations: drag a knot to bend them" : "The learned functions";
    const small = createScene({ width: 1, height: 1, href: null }, pointing);
    const matrices = createMatrices(component, pointing, small.element);
    const functions = createFunctions(component, component === "counter" ? onBend : null);
    const cards = [
      element("section", { class: "wide card" }, element("h2", {}, "Pair by pair"), matrices.element),
      element("section", { class: "wide card" }, element("div", { class: "title-row" }, element("h2", {}, title), ...(component === "counter" ? [unbend] : [])), functions.element),
    ];
    parts[component] = { small, matrices, functions, cards };
  }

  function update(counting, state, photo) {
    count.textContent = short(counting.count);
    count.dataset.value = counting.count;
    live.textContent = `count ${short(counting.count, 3)}`;
    const isPaper = counting.component === "counter";
    summary.textContent = isPaper ? `count; confidence ${short(counting.confidence)}` : "expected count";
    summary.dataset.confidence = counting.confidence ?? "";
    barsTitle.textContent = isPaper ? "Features: the count as a soft one-hot vector" : "How probable each count is";
    bars.update(counting.distribution, { asShares: !isPaper });
    compare.update(counting.baselines);
    thresholds.update(state.nms);
    steps.update(counting.steps);
    unbend.hidden = !state.activations;
    for (const [component, { small, matrices, functions, cards }] of Object.entries(parts)) {
      const isShown = component === counting.component;
      for (const part of cards) part.hidden = !isShown;
      if (!isShown) continue;
      small.resize({ width: state.width, height: state.height, href: photo });
      small.update(counting);
      matrices.update(counting);
      functions.update(counting.functions);
    }
  }

  const result = element("div", { class: "result" }, count, summary);
  // The margin makes everything below the window count as seen: only a count above it is out of sight.
  new IntersectionObserver(([{ isIntersecting }]) => (live.hidden = isIntersecting), { rootMargin: "0px 0px 100000px" }).observe(result);
  return {
    result: element("div", {}, result, problem),
    side: [
      element("section", { class: "card" }, barsTitle, bars.element),
      card("Beside it, simpler ways", compare.element, thresholds.element),
    ],
    live,
    wide: [
      ...Object.values(parts).map(({ cards }) => cards[0]),
      element("div", { class: "wide" }, card("How the count came about", steps.element)),
      ...Object.values(parts).map(({ cards }) => cards[1]),
    ],
    update,
    activations: parts.paper.cards[1],
    problem: (text) => (problem.textContent = text),
  };
}

function createThresholds(onThresholds) {
  const sliders = ["IoU", "score"].map((name, index) => {
    const output = element("output", { class: "small number" });
    const slider = element("input", { type: "range", min: 0, max: 1, step: 0.01, id: `nms-${index}`, input: () => onThresholds(sliders.map((threshold) => Number(threshold.slider.value))) });
    return { name, slider, output };
  });
  return {
    element: element("div", { class: "thresholds" }, ...sliders.map(({ name, slider, output }) => element("label", {}, `NMS ${name}`, slider, output))),
    update(nms) {
      nms.forEach((value, index) => {
        sliders[index].slider.value = value;
        sliders[index].output.textContent = short(value);
      });
    },
  };
}
