// The third tab: the matrices and the learned curves behind the count, with the boxes beside them.
import { element } from "./element.js";
import { createFunctions } from "./functions.js";
import { createMatrices } from "./matrices.js";
import { createScene } from "./scene.js";
import { boxMarks } from "./marks.js";
import { categoryColour } from "./colours.js";
import { drawCats } from "./cats.js";
import { short } from "./format.js";

const KNOTS = 17;
const straight = () => Array.from({ length: KNOTS }, (_, knot) => knot / (KNOTS - 1));
const PRESETS = [
  { label: "f1: trust only high scores", number: 0, height: (x) => Math.max(0, (x - 0.75) / 0.25) },
  { label: "f1: trust low scores", number: 0, height: (x) => Math.min(1, x / 0.25) },
  { label: "f3: nothing is a duplicate", number: 2, height: (x) => (x < 1 ? 0 : 1) },
  { label: "f3: everything is a duplicate", number: 2, height: (x) => (x > 0 ? 1 : 0) },
];

export function createHoodTab({ scenes, pointing, state, change }) {
  const scene = createScene({ width: 1, height: 1, href: null }, pointing, { isEditable: true });
  const count = element("span", { class: "count" });
  const reset = element("button", { type: "button", id: "reset", click: () => change({ activations: null }) }, "Reset curves");
  const presets = PRESETS.map(({ label, number, height }) => {
    const knots = straight().map((x) => Math.round(1e4 * height(x)) / 1e4);
    return { number, knots, button: element("button", { type: "button", class: "preset", click: () => change({ activations: Array.from({ length: 8 }, (_, index) => (index === number ? knots : straight())), parameters: "untrained" }) }, label) };
  });
  let curves = null; // the activations that are shown

  function bend(number, knots) {
    const rounded = knots.map((height) => Math.round(height * 1e4) / 1e4);
    change({ activations: (state().activations ?? curves ?? []).map((row, index) => (index === number ? rounded : row)), parameters: "untrained" });
  }

  const parts = {};
  for (const component of ["counter", "presence"]) {
    const isCounter = component === "counter";
    const matrices = createMatrices(component, pointing);
    const functions = createFunctions(component, isCounter ? bend : null);
    const title = isCounter ? "Eight learned curves: try a preset or drag a knot, and watch the count" : "Learned curves";
    parts[component] = {
      matrices,
      functions,
      cards: [
        element("section", { class: "card" }, element("h2", {}, "Box-to-box matrices"), matrices.element),
        element("section", { class: "card" }, element("h2", {}, title), ...(isCounter ? [element("div", { class: "toolbar" }, ...presets.map(({ button }) => button), reset)] : []), functions.element),
      ],
    };
  }

  function update(explained, href) {
    const { width, height, category, activations, scene: name } = state();
    scene.resize({ width, height, href });
    drawCats(scene, name === scenes[0].name);
    scene.update(boxMarks(explained, categoryColour(0), category));
    if (!explained.isComplete) return;
    count.textContent = short(explained.count, 3);
    count.dataset.value = explained.count;
    curves = explained.functions.activations;
    reset.disabled = !activations;
    for (const { number, knots, button } of presets) button.setAttribute("aria-pressed", String(activations?.[number]) === String(knots));
    for (const [component, { matrices, functions, cards }] of Object.entries(parts)) {
      const isShown = component === explained.component;
      for (const part of cards) part.hidden = !isShown;
      if (!isShown) continue;
      matrices.update(explained);
      functions.update(explained.functions);
    }
  }

  return {
    update,
    element: element(
      "section",
      { class: "tab hood" },
      element("aside", { class: "card pinned" }, element("p", { class: "result" }, count, element("span", { class: "quiet" }, "count of the scene in “Play”")), scene.element),
      element("div", { class: "stack" }, ...Object.values(parts).flatMap(({ cards }) => cards)),
    ),
  };
}
