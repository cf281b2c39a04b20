// The static page that explains counts: reads its data from the page itself.
import { card, element } from "./element.js";
import { createPointing } from "./pointing.js";
import { createScene, createViewSwitch, sceneLegend } from "./scene.js";
import { createBars } from "./bars.js";
import { createCompare } from "./compare.js";
import { boxTable } from "./box_table.js";
import { createMatrices } from "./matrices.js";
import { createFunctions } from "./functions.js";
import { boxMarks, kindCounts, otherMarks } from "./marks.js";
import { categoryColour } from "./colours.js";
import { percent, range } from "./format.js";

function boxesCard(image, count, counted, pointing, colour) {
  const marks = [...counted, ...otherMarks(count.other_boxes ?? [], counted.length, count.name)];
  const scene = createScene(image, pointing);
  const viewSwitch = createViewSwitch(scene);
  const counts = kindCounts(marks);
  scene.update(marks);
  viewSwitch.update({ boxes: marks.length, counted: counts.clear + counts.doubtful });
  viewSwitch.choose("counted");
  return element("section", { class: "card" }, viewSwitch.element, scene.element, sceneLegend(["clear", "doubtful", "duplicate", "other"], { counts, colour }));
}

function distributionCard(count) {
  const areFeatures = count.component === "counter" && count.low === null;
  const bars = createBars();
  const { low, high } = count;
  const last = count.distribution.length - 1;
  bars.update(count.distribution, { low, high, answer: low === null ? undefined : count.count, asShares: !areFeatures });
  const title = areFeatures ? "Output of the layer" : "How probable each count is";
  const key = low === null ? [] : [element("p", { class: "small quiet" }, `Bold: best estimate, ${percent(count.distribution[Math.min(count.count, last)])} probable. Blue bars: 90 % interval, ${range(low, high)}.${high >= last ? ` ${last}+ means ${last} or more.` : ""}`)];
  return card(title, bars.element, ...key);
}

function mathematics(image, count, marks, pointing) {
  const small = createScene(image, pointing);
  const heads = [count, ...count.other_heads];
  const [matrices, functions] = [createMatrices(count.component, pointing, small.element), createFunctions(count.component)];
  small.update(marks);
  const showHead = (head) => {
    matrices.update({ ...head, low: count.low });
    functions.update(head.functions);
  };
  showHead(count);
  const headList = element("select", { id: "head", change: () => showHead(heads[headList.selectedIndex]) }, ...heads.map((_, number) => element("option", {}, `model ${number + 1}`)));
  const picker = element("p", { class: "quiet small" }, element("label", { for: "head" }, "Matrices and curves of "), headList, ` (of ${heads.length}; presence is their mean)`);
  return element(
    "details",
    { class: "wide mathematics" },
    element("summary", {}, "The mathematics: every box, matrices and curves"),
    element("div", { class: "wide card" }, element("h2", {}, "Boxes"), boxTable(count, marks, pointing)),
    element("div", { class: "wide card" }, element("h2", {}, "Box-to-box matrices"), ...(heads.length > 1 ? [picker] : []), matrices.element),
    element("div", { class: "wide card" }, element("h2", {}, "Learned curves"), functions.element),
  );
}

function show(data, number) {
  const count = data.counts[number];
  const pointing = createPointing();
  const marks = boxMarks(count, categoryColour(number), count.name);
  const compare = createCompare();
  compare.update({ ...count, colour: categoryColour(number), name: count.low !== null ? "tallybox" : count.component === "presence" ? "presence counter" : "counter" });
  return [
    element("div", { class: "answer" }, element("span", { class: "count" }, count.headline), element("span", { class: "summary" }, count.facts.join(" "))),
    element(
      "div",
      { class: "columns" },
      element("div", {}, boxesCard(data.image, count, marks, pointing, categoryColour(number))),
      element("div", {}, distributionCard(count), ...(count.baselines ? [card("Other methods", compare.element)] : [])),
    ),
    mathematics(data.image, count, marks, pointing),
  ];
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const body = element("div");
  const chips = data.counts.map(({ label, low, high }, number) => {
    const swatch = element("span", { class: "swatch clear" });
    swatch.style.background = categoryColour(number);
    const interval = low === null ? [] : [element("span", { class: "quiet" }, ` ${range(low, high)}`)];
    return element("button", { type: "button", class: "chip", click: () => choose(number) }, swatch, label, ...interval);
  });

  function choose(number) {
    chips.forEach((chip, index) => chip.setAttribute("aria-pressed", index === number));
    body.replaceChildren(...show(data, number));
  }

  document.getElementById("page").append(
    element("header", { class: "head" }, element("div", {}, element("h1", {}, data.title), element("p", { class: "quiet small" }, data.source))),
    ...(chips.length > 1 ? [element("div", { class: "chips", role: "group", "aria-label": "Categories" }, ...chips)] : []),
    body,
  );
  choose(0);
}

start();
