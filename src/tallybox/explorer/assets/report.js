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
import { createGlimpse } from "./glimpse.js";
import { percent, short } from "./format.js";
import { scoreName } from "./objects.js";

function card(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}

function answer(counting) {
  if (counting.asked) {
    const [[said, probability]] = counting.asked.answers;
    const unknown = counting.asked.unknown_words;
    const known = unknown.length ? ` It does not know: ${unknown.map((word) => `“${word}”`).join(", ")}.` : "";
    return [said, `${percent(probability)} probable, says the model.${known}`];
  }
  const said = counting.prediction;
  if (!said) {
    const confidence = counting.views[0].trace.confidence;
    const how = confidence === undefined ? "expected count" : `count, with a confidence of ${short(confidence)}`;
    return [short(counting.count), `${how}; ${counting.boxes.length} boxes`];
  }
  const probable = `the most probable count${said.most_probable === said.count ? "" : ` is ${said.most_probable}`} (${percent(said.probability)})`;
  const answer = said.most_probable === said.count ? `The median, and ${probable}.` : `The median; ${probable}.`;
  const interval = said.low === said.high ? "" : ` The 90 % interval is ${said.low} to ${said.high}.`;
  return [`${said.at_least ? "about " : ""}${said.count}`, `${answer}${interval} The mean is ${short(said.expected)}.`];
}

// What was asked, where something was: the answers, and what was looked at for them.
function answersCard({ asked }) {
  if (!asked) return [];
  const answers = createAnswers();
  answers.update(asked.answers);
  return [card("The answer and the runners-up", answers.element)];
}

function glimpseCard(data, counting, pointing) {
  if (!counting.asked) return [];
  const glimpse = createGlimpse(data.image, pointing);
  glimpse.update(counting);
  return [card("What the first glimpse looks at", glimpse.element)];
}

function distributionTitle(counting, areFeatures) {
  if (areFeatures) return "Features, one for each count";
  return counting.asked ? "How probable each count is to the counting component" : "How probable each count is";
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
        ...glimpseCard(data, counting, pointing),
        card("The boxes", scene.element, sceneLegend()),
        card(distributionTitle(counting, areFeatures), bars.element),
        card("What simpler ways would say", compare.element),
      ),
      element("div", {}, ...answersCard(counting), card(counting.asked ? "How the answer came about" : "How the count came about", steps.element), card("Box by box", table.element)),
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
  compare.update(counting.baselines, scoreName(counting));
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
