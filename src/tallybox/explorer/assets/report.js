// The static page that explains counts: reads its data from the page itself.
import { element } from "./element.js";
import { createPointing } from "./pointing.js";
import { createScene, sceneLegend } from "./scene.js";
import { createBars } from "./bars.js";
import { createSteps } from "./steps.js";
import { createCompare } from "./compare.js";
import { createBoxTable } from "./box_table.js";
import { createMatrices } from "./matrices.js";
import { createFunctions } from "./functions.js";
import { percent, short } from "./format.js";

function card(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}

function answer(counting) {
  const said = counting.prediction;
  if (!said) {
    const confidence = counting.views[0].trace.confidence;
    const how = confidence === undefined ? "expected count" : `count, with a confidence of ${short(confidence)}`;
    return [short(counting.count), `${how}; ${counting.boxes.length} boxes`];
  }
  const interval = said.low === said.high ? "" : ` Nine of ten true counts lie in ${said.low} to ${said.high}.`;
  return [`${said.at_least ? "≥ " : ""}${said.count}`, `most probable (${percent(said.probability)}).${interval} Expected ${short(said.expected)}.`];
}

function show(data, counting) {
  const pointing = createPointing();
  const [scene, small] = [createScene(data.image, pointing), createScene(data.image, pointing)];
  const [bars, steps, compare, table] = [createBars(), createSteps(), createCompare(), createBoxTable(pointing)];
  const component = counting.views[0].component;
  const [matrices, functions] = [createMatrices(component, pointing, small.element), createFunctions(component)];
  const heads = element(
    "select",
    { id: "head", change: () => showView(counting.views[heads.selectedIndex]) },
    ...counting.views.map(({ name }) => element("option", {}, name)),
  );
  const headPicker = () => element("p", {}, element("label", { for: "head" }, "Shown: "), heads);

  function showView(view) {
    matrices.update(view);
    functions.update(view.functions);
  }

  const [count, said] = answer(counting);
  const areFeatures = component === "paper" && !counting.prediction;
  const page = [
    element("div", { class: "answer" }, element("span", { class: "count" }, count), element("span", { class: "said" }, said)),
    element(
      "div",
      { class: "columns" },
      element(
        "div",
        {},
        card("The boxes", scene.element, sceneLegend()),
        card(areFeatures ? "Features, one for each count" : "How probable each count is", bars.element),
        card("What simpler ways would say", compare.element),
      ),
      element("div", {}, card("How the count came about", steps.element), card("Box by box", table.element)),
    ),
    element(
      "div",
      { class: "wide card" },
      element("h2", {}, "Pair by pair"),
      ...(counting.views.length > 1 ? [headPicker()] : []),
      matrices.element,
    ),
    element("div", { class: "wide card" }, element("h2", {}, component === "paper" ? "The eight activations" : "What was learned"), functions.element),
  ];
  scene.update(counting);
  small.update(counting);
  const { low, high } = counting.prediction ?? {};
  bars.update(counting.distribution, { low, high, asShares: !areFeatures });
  steps.update(counting.steps);
  compare.update(counting.baselines);
  table.update(counting);
  showView(counting.views[0]);
  return page;
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const body = element("div");
  const choose = (place) => body.replaceChildren(...show(data, data.countings[place]));
  const categories = element(
    "select",
    { id: "category", change: () => choose(categories.selectedIndex) },
    ...data.countings.map(({ name }) => element("option", {}, name)),
  );
  const picker = data.countings.length > 1 ? [element("div", {}, element("label", { for: "category" }, "Category "), categories)] : [];
  document.getElementById("report").append(
    element("header", { class: "head" }, element("div", {}, element("h1", {}, data.title), element("p", { class: "quiet small" }, data.source)), ...picker),
    body,
  );
  choose(0);
}

start();
