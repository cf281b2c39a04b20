// The second tab: move boxes and change scores, and watch the count.
import { card, element } from "./element.js";
import { fetchJson } from "./client.js";
import { createBars } from "./bars.js";
import { createCompare } from "./compare.js";
import { createScene, sceneLegend } from "./scene.js";
import { createEditor } from "./editor.js";
import { createSliders } from "./sliders.js";
import { drawCats } from "./cats.js";
import { copyText } from "./sharing.js";
import { boxMarks } from "./marks.js";
import { categoryColour } from "./colours.js";
import { range, short } from "./format.js";

// One action a step, on the scene of the cats.
const TASKS = [
  { text: "1/3 Drag box 4 onto box 3. The count drops from 3 to 2.", isDone: ({ count }) => count < 2.4 },
  { text: "2/3 Drag it away again. The count returns to 3.", isDone: ({ count }) => count > 2.7 },
  { text: "3/3 Set the score of box 4 to 0. A box counts as much as its score says.", isDone: ({ scores }) => scores[3] <= 0.05 },
  { text: "Done. The tab “Under the hood” shows how it works.", isDone: () => false },
];
const COMPONENTS = { counter: "Paper's counter", presence: "Presence counter", estimator: "Photo estimator" };

export function createPlayTab({ scenes, parameterSets, pointing, state, change, showScene, onProblem }) {
  const scene = createScene({ width: 1, height: 1, href: null }, pointing, { isEditable: true });
  let selected = null;
  const select = (box) => ((selected = box), editor.update());
  const editor = createEditor(scene, { state, change, select, selected: () => selected });
  const sliders = createSliders(pointing, {
    onScore: (box, score) => change({ attention: state().attention.map((old, number) => (number === box ? score : old)) }),
    onRemove: editor.remove,
  });
  const [compare, bars, thresholds] = [createCompare(), createBars(), createThresholds((nms) => change({ nms }))];
  const count = element("span", { class: "count", "aria-live": "polite" });
  const summary = element("span", { class: "quiet" });
  const task = element("p", { class: "task", role: "status" });
  let step = 0;

  const sceneList = element(
    "select",
    { id: "scene", "aria-label": "Scene", change: () => chooseScene(sceneList.value) },
    element("option", { value: "", hidden: "" }, "Edited scene"),
    ...scenes.map(({ name, label }) => element("option", { value: name }, label)),
    element("option", { value: "toy" }, "Toy task of the paper"),
    element("option", { value: "empty" }, "Empty canvas"),
    element("option", { value: "photo", hidden: "" }, "Boxes of a photo"),
  );
  const [side, noise] = [["l", "side-length", 0.5], ["q", "noise", 0.25]].map(([letter, id, value]) => ({
    letter,
    field: element("input", { type: "number", id, min: 0, max: 1, step: 0.05, value, change: () => drawToy() }),
  }));
  let seed = 5;
  const truth = element("span", { class: "small quiet", id: "truth" });
  const toyBar = element("div", { class: "toolbar" }, ...[side, noise].map(({ letter, field }) => element("label", {}, letter, field)), element("button", { type: "button", click: () => ((seed += 1), drawToy()) }, "Another"), truth);

  function chooseScene(name) {
    step = 0;
    selected = null;
    if (name === "toy") drawToy();
    else if (name === "empty") showScene({ name, width: 640, height: 400, boxes: [], attention: [] });
    else showScene(scenes.find((one) => one.name === name));
  }

  async function drawToy() {
    try {
      const drawn = await fetchJson(`/v1/scenes/toy?side_length=${encodeURIComponent(side.field.value)}&noise=${encodeURIComponent(noise.field.value)}&seed=${seed}`);
      showScene({ ...drawn, kind: "toy", name: `toy-${Number(side.field.value)}-${Number(noise.field.value)}` });
      truth.textContent = `True count: ${drawn.true_count}`;
    } catch (failed) {
      onProblem(failed.message);
    }
  }

  const components = Object.entries(COMPONENTS).map(([name, label]) => ({
    name,
    button: element("button", { type: "button", "data-component": name, click: () => change({ component: name, parameters: "untrained", activations: null }) }, label),
  }));
  const parameterList = element("select", { id: "parameters", "aria-label": "Parameters", change: () => change({ parameters: parameterList.value, activations: null }) });
  const unsuited = element("p", { class: "problem" });
  const copied = element("span", { class: "small quiet", role: "status" });

  // Only parameters that were trained for such scenes are offered.
  function updateChoices() {
    const { kind, component, parameters, activations, scene: name } = state();
    sceneList.value = kind === "photo" || name.startsWith("toy-") ? kind : name;
    toyBar.hidden = kind !== "toy";
    for (const one of components) {
      one.button.hidden = one.name === "estimator" && kind !== "photo";
      one.button.setAttribute("aria-pressed", one.name === component);
    }
    const sets = (parameterSets[component] ?? []).filter(({ scenes: suited }) => suited === "all" || suited === kind);
    parameterList.replaceChildren(...sets.map((set) => element("option", { value: set.name }, set.label)), element("option", { value: "bent", hidden: "" }, "bent by hand"));
    parameterList.value = activations ? "bent" : parameters;
    parameterList.hidden = sets.length < 2 && !activations;
    const [, trainedSide, trainedNoise] = parameters.split("-");
    unsuited.hidden = !parameters.startsWith("toy-") || name === `toy-${trainedSide}-${trainedNoise}`;
    unsuited.textContent = `These parameters were trained on scenes with l = ${trainedSide}, q = ${trainedNoise}. They do not suit this one.`;
  }

  // ``explained`` has the boxes as they are now; its count may still be on its way.
  function update(explained, href) {
    const { scene: name, category, component, width, height, nms } = state();
    const isCats = name === scenes[0].name;
    scene.resize({ width, height, href });
    drawCats(scene, isCats);
    scene.update(boxMarks(explained, categoryColour(0), category));
    sliders.update(explained, categoryColour(0));
    editor.update();
    updateChoices();
    thresholds.update(nms);
    thresholds.element.hidden = component === "estimator";
    if (!explained.isComplete) return;
    const isEstimate = component === "estimator";
    count.textContent = short(explained.count);
    count.dataset.value = explained.count;
    summary.textContent = isEstimate ? `count of “${category}” · 90 %: ${range(explained.low, explained.high)}` : component === "counter" ? `confidence ${short(explained.confidence)}` : "expected count";
    compare.update({ ...explained, colour: categoryColour(0), name: isEstimate ? "tallybox" : COMPONENTS[component], digits: isEstimate ? 1 : 2 });
    bars.update(explained.distribution, { low: explained.low ?? undefined, high: explained.high ?? undefined, answer: isEstimate ? explained.count : undefined, asShares: component !== "counter" });
    barsTitle.textContent = component === "counter" ? "Output of the layer" : "How probable each count is";
    task.hidden = !isCats || component !== "counter" || Boolean(state().activations);
    while (!task.hidden && TASKS[step].isDone(explained)) step += 1;
    task.textContent = TASKS[step].text;
    scene.element.classList.toggle("nudge", !task.hidden && step === 0);
  }

  const distribution = card("", bars.element);
  const barsTitle = distribution.querySelector("h2");
  return {
    update,
    start: () => (step = 0),
    deselect: () => (selected = null),
    element: element(
      "section",
      { class: "tab play" },
      task,
      element(
        "div",
        { class: "columns" },
        element(
          "div",
          {},
          element(
            "section",
            { class: "card", id: "boxes" },
            element("div", { class: "toolbar" }, sceneList, element("span", { class: "gap" }), element("button", { type: "button", id: "add", click: editor.addInTheMiddle }, "Add a box")),
            toyBar,
            scene.element,
            sceneLegend(["clear", "doubtful", "duplicate", "other"]),
            element("p", { class: "quiet small hint" }, "Drag on empty canvas to draw a box, drag a box to move it, a corner to resize it. ", element("span", { class: "with-mouse" }, "Keyboard: Tab to a box, arrow keys move it, Shift and arrow keys resize it, Delete removes it.")),
          ),
          element("section", { class: "card scores" }, element("h2", {}, "Scores"), sliders.element),
        ),
        element(
          "div",
          {},
          element(
            "section",
            { class: "card outcome" },
            element("div", { class: "toolbar" }, element("div", { class: "choices", role: "group", "aria-label": "Component" }, ...components.map(({ button }) => button)), parameterList),
            unsuited,
            element("p", { class: "result" }, count, summary),
            compare.element,
            thresholds.element,
          ),
          distribution,
          element("div", { class: "toolbar" }, element("button", { type: "button", id: "share", click: () => copyText(location.href, copied) }, "Copy link"), copied),
        ),
      ),
    ),
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
