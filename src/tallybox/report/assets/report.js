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
import { createAnswers } from "./answers.js";
import { createAttentionMap } from "./attention_map.js";
import { percent, short } from "./format.js";
import { isPaper, scoreName } from "./objects.js";

function card(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}

// The count or answer, and a sentence about it.
function result(counting) {
  const { answers, prediction, confidence } = counting;
  if (answers) {
    const [[answer, probability]] = answers;
    const unknown = counting.unknown_words.map((word) => `“${word}”`).join(", ");
    return [answer, `${percent(probability)} probable, says the model.${unknown && ` It does not know: ${unknown}.`}`];
  }
  if (!prediction) {
    const kind = isPaper(counting) ? `count, with a confidence of ${short(confidence)}` : "expected count";
    return [short(counting.count), `${kind}; ${counting.boxes.length} boxes`];
  }
  const { count, most_probable, probability, low, high, expected } = prediction;
  const isMedian = most_probable === count;
  const probable = isMedian ? ", and the most probable count" : `; the most probable count is ${most_probable}`;
  const interval = low === high ? "" : ` The 90 % interval is ${low} to ${high}.`;
  return [`${prediction.at_least ? "about " : ""}${count}`, `The median${probable} (${percent(probability)}).${interval} The mean is ${short(expected)}.`];
}

// Of a VQA answer: the answers, and the attention that they come from.
function answersCard({ answers }) {
  if (!answers) return [];
  const table = createAnswers();
  table.update(answers);
  return [card("The answer and the runners-up", table.element)];
}

function attentionCard(data, counting, pointing) {
  if (!counting.answers) return [];
  const map = createAttentionMap(data.image, pointing);
  map.update(counting);
  return [card("What the first attention map attends to", map.element)];
}

function distributionTitle(counting, areFeatures) {
  if (areFeatures) return "Features, one for each count";
  return counting.answers ? "How probable each count is to the counting component" : "How probable each count is";
}

function show(data, counting) {
  const pointing = createPointing();
  const [scene, small] = [createScene(data.image, pointing), createScene(data.image, pointing)];
  const [bars, steps, compare, table] = [createBars(), createSteps(), createCompare(), createBoxTable(pointing)];
  const { component } = counting;
  const heads = [counting, ...counting.other_heads];
  const [matrices, functions] = [createMatrices(component, pointing, small.element), createFunctions(component)];
  const headList = element(
    "select",
    { id: "head", change: () => showHead(heads[headList.selectedIndex]) },
    ...heads.map(({ head_name }) => element("option", {}, head_name ?? "")),
  );
  const headPicker = () => element("p", {}, element("label", { for: "head" }, "Shown: "), headList);

  function showHead(head) {
    matrices.update(head);
    functions.update(head.functions);
  }

  const [count, summary] = result(counting);
  const areFeatures = component === "paper" && !counting.prediction;
  const page = [
    element("div", { class: "answer" }, element("span", { class: "count" }, count), element("span", { class: "summary" }, summary)),
    element(
      "div",
      { class: "columns" },
      element(
        "div",
        {},
        ...attentionCard(data, counting, pointing),
        card("The boxes", scene.element, sceneLegend()),
        card(distributionTitle(counting, areFeatures), bars.element),
        card("What simpler ways would say", compare.element),
      ),
      element("div", {}, ...answersCard(counting), card(counting.answers ? "How the answer came about" : "How the count came about", steps.element), card("Box by box", table.element)),
    ),
    element(
      "div",
      { class: "wide card" },
      element("h2", {}, "Pair by pair"),
      ...(heads.length > 1 ? [headPicker()] : []),
      matrices.element,
    ),
    element("div", { class: "wide card" }, element("h2", {}, component === "paper" ? "The eight activations" : "The learned functions"), functions.element),
  ];
  scene.update(counting);
  small.update(counting);
  const { low, high } = counting.prediction ?? {};
  bars.update(counting.distribution, { low, high, asShares: !areFeatures });
  steps.update(counting.steps);
  compare.update(counting.baselines, scoreName(counting));
  table.update(counting);
  showHead(counting);
  return page;
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const body = element("div");
  const choose = (index) => body.replaceChildren(...show(data, data.countings[index]));
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
