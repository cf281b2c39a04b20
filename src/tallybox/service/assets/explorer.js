// The explorer: boxes and weights on the left, what the library makes of them on the right.
import { element } from "./element.js";
import { createPointing } from "./pointing.js";
import { createScene, sceneLegend } from "./scene.js";
import { createEditor } from "./editor.js";
import { createSliders } from "./sliders.js";
import { createPanels } from "./panels.js";
import { createControls } from "./controls.js";
import { createExplainer, fetchJson, setToken } from "./client.js";
import { emptyState, fromHash, request, sceneState, toHash } from "./state.js";

function start(scenes, weightSets) {
  const pointing = createPointing();
  const linked = fromHash(location.hash.slice(1));
  let state = linked ?? sceneState(emptyState(), scenes[0]);
  let photo = null; // a data URL; stays in the browser
  let answer = null;
  let selected = null;

  const scene = createScene({ width: state.width, height: state.height, href: null }, pointing);
  const editor = createEditor(scene, { state: () => state, change, select, selected: () => selected });
  const sliders = createSliders(pointing, { onWeight: setWeight, onRemove: editor.remove });
  const panels = createPanels(pointing, { onBend: bend, onUnbend: () => change({ activations: null }), onThresholds: (nms) => change({ nms }) });
  const controls = createControls({
    scenes,
    weightSets,
    state: () => state,
    answer: () => answer,
    counting,
    photo: () => photo,
    change,
    showScene,
    showPhoto,
    addBox: editor.addInTheMiddle,
    problem: panels.problem,
  });
  const root = document.getElementById("explorer");
  const explain = createExplainer({
    onAnswer(received) {
      answer = received;
      panels.problem("");
      draw();
    },
    onProblem: (problem) => panels.problem(problem.message),
    onIdle: () => root.setAttribute("aria-busy", "false"),
  });

  function change(changes) {
    state = { ...state, ...changes };
    history.replaceState(null, "", `#${toHash(state)}`);
    draw();
    root.setAttribute("aria-busy", "true");
    const sent = state;
    explain(request(sent), () => sent.component !== state.component || sent.boxes.length !== state.boxes.length);
  }

  function select(box) {
    selected = box;
    editor.update();
  }

  function setWeight(box, weight) {
    change({ attention: state.attention.map((old, number) => (number === box ? weight : old)) });
  }

  function bend(number, knots) {
    const current = state.activations ?? answer.functions.activations;
    const rounded = knots.map((height) => Math.round(height * 1e4) / 1e4);
    change({ activations: current.map((row, index) => (index === number ? rounded : row)), weights: "untrained" });
  }

  function showScene(shown) {
    photo = null;
    selected = null;
    change(sceneState(state, shown));
  }

  function showPhoto(href, width, height, found) {
    photo = href;
    selected = null;
    change({ width, height, ...found });
  }

  // The answer of the service, with the boxes as they are now; before it arrives, all boxes are left over.
  function counting() {
    const { component, boxes, attention: scores } = state;
    const fits = answer?.component === component && answer.presence.length === boxes.length;
    const known = fits ? answer : { component, presence: boxes.map(() => 0), merged_into: boxes.map(() => -1) };
    return { ...known, boxes, scores, isComplete: fits };
  }

  function draw() {
    scene.resize({ width: state.width, height: state.height, href: photo });
    const shown = counting();
    scene.update(shown);
    sliders.update(shown);
    editor.update();
    controls.update();
    root.classList.toggle("waiting", !shown.isComplete);
    if (shown.isComplete) panels.update(shown, state, photo);
  }

  window.addEventListener("hashchange", () => {
    const arrived = fromHash(location.hash.slice(1));
    if (arrived) change(arrived);
  });

  root.replaceChildren(
    element(
      "header",
      { class: "head" },
      element("div", {}, element("h1", {}, "See it count"), element("p", { class: "quiet small" }, "Move boxes and weights; every number comes from the library.")),
      controls.shareBar,
    ),
    element(
      "div",
      { class: "columns" },
      element(
        "div",
        {},
        element(
          "section",
          { class: "card" },
          controls.sceneBar,
          scene.element,
          panels.live,
          sceneLegend(),
          element("p", { class: "quiet small hint" }, "Drag on empty canvas to draw a box. Drag a box to move it, a corner to resize it. With the keyboard: Tab to a box, arrow keys move it, Shift and arrow keys resize it, Delete removes it."),
        ),
        element("section", { class: "card" }, element("h2", {}, "Weights"), sliders.element),
      ),
      element("div", {}, element("section", { class: "card" }, controls.componentBar, panels.result), ...panels.side),
    ),
    ...panels.wide,
  );
  if (!linked) controls.nameScene(scenes[0].name);
  change({});
}

function askForToken(retry) {
  const field = element("input", { type: "password", id: "token", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    setToken(field.value);
    retry();
  };
  document.getElementById("explorer").replaceChildren(
    element("form", { class: "card", submit }, element("p", {}, element("label", { for: "token" }, "This service asks for a token. "), field, " ", element("button", {}, "Go on"))),
  );
}

async function load() {
  try {
    start(...(await Promise.all([fetchJson("/v1/scenes"), fetchJson("/v1/weights")])));
  } catch (problem) {
    if (problem.status === 401) askForToken(load);
    else throw problem;
  }
}

load();
