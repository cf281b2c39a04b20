// The static page that explains counts: reads its data from the page itself.
import { card, element } from "./element.js";
import { createPointing } from "./pointing.js";
import { createScene, sceneLegend } from "./scene.js";
import { createBars } from "./bars.js";
import { createSteps } from "./steps.js";
import { createCompare } from "./compare.js";
import { boxTable } from "./box_table.js";
import { createMatrices } from "./matrices.js";
import { createFunctions } from "./functions.js";
import { answerTable, attentionMap } from "./vqa_answer.js";
import { scoreName } from "./objects.js";

function distributionTitle(counting, areFeatures) {
  if (areFeatures) return "Features, one for each count";
  return counting.answers ? "How probable each count is to the counting component" : "How probable each count is";
}

function show(data, counting) {
  const pointing = createPointing();
  const [scene, small] = [createScene(data.image, pointing), createScene(data.image, pointing)];
  const [bars, steps, compare] = [createBars(), createSteps(), createCompare()];
  const { component, answers } = counting; // only a VQA model gives answers
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

  const { headline, certainty, interval, reasons } = counting.summary;
  const areFeatures = component === "counter" && !counting.prediction;
  const distribution = card(distributionTitle(counting, areFeatures), bars.element);
  const how = card(answers ? "How the answer came about" : "How the count came about", steps.element);
  const why = card("Which boxes, and why", element("ul", { class: "reasons" }, ...reasons.map((reason) => element("li", {}, reason))));
  const attention = answers ? [card("What the first attention map attends to", attentionMap(data.image, counting, pointing))] : [];
  const explanation = answers ? [card("The answer and the runners-up", answerTable(answers)), how] : [why, distribution];
  const page = [
    element("div", { class: "answer" }, element("span", { class: "count" }, headline), element("span", { class: "summary" }, `${certainty}. ${interval}`)),
    element(
      "div",
      { class: "columns" },
      element("div", {}, ...attention, card("The boxes", scene.element, sceneLegend())),
      element("div", {}, ...explanation, card("What simpler ways would say", compare.element)),
    ),
    element(
      "details",
      { class: "wide mathematics" },
      element("summary", {}, "The mathematics: steps, every box, matrices and functions"),
      element("div", { class: "columns wide" }, element("div", {}, answers ? distribution : how), element("div", {}, card("Box by box", boxTable(counting, pointing)))),
      element(
        "div",
        { class: "wide card" },
        element("h2", {}, "Pair by pair"),
        ...(heads.length > 1 ? [element("p", { class: "quiet small" }, `An estimator joins ${heads.length} heads of several models. Matrices and functions are those of the chosen one; steps, presences and colours are the mean of all.`), headPicker()] : []),
        matrices.element,
      ),
      element("div", { class: "wide card" }, element("h2", {}, component === "counter" ? "The eight activations" : "The learned functions"), functions.element),
    ),
  ];
  scene.update(counting);
  small.update(counting);
  const { low, high, count: answer } = counting.prediction ?? {};
  bars.update(counting.distribution, { low, high, answer, asShares: !areFeatures });
  steps.update(counting.steps);
  compare.update(counting.baselines, scoreName(counting));
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
    ...data.countings.map(({ summary }) => element("option", {}, summary.headline)),
  );
  const picker = data.countings.length > 1 ? [element("div", {}, element("label", { for: "category" }, "Category "), categories)] : [];
  document.getElementById("report").append(
    element("header", { class: "head" }, element("div", {}, element("h1", {}, data.title), element("p", { class: "quiet small" }, data.source)), ...picker),
    body,
  );
  choose(0);
}

start();
