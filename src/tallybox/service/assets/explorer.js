// The explorer: boxes and weights on the left, what the library makes of them on the right.
import { card, element } from "./element.js";
import { createPointing } from "./pointing.js";
import { createScene, sceneLegend } from "./scene.js";
import { createEditor } from "./editor.js";
import { createSliders } from "./sliders.js";
import { createPanels } from "./panels.js";
import { createControls } from "./controls.js";
import { createPhotos } from "./photos.js";
import { createTour } from "./tour.js";
import { createExplainer, fetchJson, setToken } from "./client.js";
import { emptyState, fromHash, request, sceneState, toHash } from "./state.js";

function start(scenes, weightSets, photoNames) {
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
    addBox: editor.addInTheMiddle,
    problem: panels.problem,
  });
  const photos = createPhotos(photoNames, { onCategory: showCategory });
  const origin = element("p", { class: "origin", id: "origin" }); // where the boxes come from
  const boxesCard = card(
    "How it counts: boxes and weights",
    controls.sceneBar,
    scene.element,
    origin,
    sceneLegend(),
    element("p", { class: "quiet small hint" }, "Drag on empty canvas to draw a box. Drag a box to move it, a corner to resize it. With the keyboard: Tab to a box, arrow keys move it, Shift and arrow keys resize it, Delete removes it."),
  );
  boxesCard.id = "boxes";
  const tour = createTour([
    { part: () => photos.element, text: "Choose a photo, or take one of yours. A detector finds boxes, often several for one object; tallybox says how many objects there are, with a range. “How?” takes the boxes of one category to the next part." },
    { part: () => boxesCard, text: "Every box has a weight: how sure the detector is. Drag a box over another until both show one object, and the count falls by one. Adding up weights, or throwing boxes away (NMS), is shown beside it." },
    { part: showActivations, text: "The paper's component learns eight functions. Bend one by dragging its knots: the count stays in view and follows, which is what training uses. “Straighten” undoes it." },
  ]);
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

  function showActivations() {
    if (state.component !== "counter") change({ component: "counter", weights: "untrained", activations: null });
    return panels.activations;
  }

  function showScene(chosen) {
    photo = null;
    origin.textContent = "";
    selected = null;
    change(sceneState(state, chosen));
  }

  // The boxes of a category in a photo, counted by one of the components that the estimator joins.
  function showCategory(name, { count, low, high }, href, boxes) {
    photo = href;
    selected = null;
    controls.nameScene("");
    const fitted = weightSets.presence.find((set) => set.name.startsWith("photo"));
    change({ ...boxes, activations: null, ...(fitted ? { component: "presence", weights: fitted.name } : {}) });
    const range = low === high ? "" : ` (${low} to ${high})`;
    origin.textContent = `${name}: the estimator counts ${count}${range}. It joins several trained components. Here one of them counts the same boxes alone, so its number may differ.`;
    boxesCard.scrollIntoView({ block: "start" });
  }

  // The answer of the service, with the boxes as they are now; before it arrives, all boxes are left over.
  function counting() {
    const { component, boxes, attention: scores } = state;
    const fits = answer?.component === component && answer.presence.length === boxes.length;
    const counted = fits ? answer : { component, presence: boxes.map(() => 0), merged_into: boxes.map(() => -1) };
    return { ...counted, boxes, scores, isComplete: fits, isEdited: true };
  }

  function draw() {
    scene.resize({ width: state.width, height: state.height, href: photo });
    const current = counting();
    scene.update(current);
    sliders.update(current);
    editor.update();
    controls.update();
    root.classList.toggle("waiting", !current.isComplete);
    if (current.isComplete) panels.update(current, state, photo);
  }

  window.addEventListener("hashchange", () => {
    const arrived = fromHash(location.hash.slice(1));
    if (arrived) change(arrived);
  });

  root.replaceChildren(
    element(
      "header",
      { class: "head" },
      element("div", {}, element("h1", {}, "See it count"), element("p", { class: "quiet small" }, "How many objects are in a photo, and how the number comes about. ", element("button", { type: "button", class: "link", id: "tour", click: tour.start }, "Take the tour"))),
      controls.shareBar,
    ),
    photos.element,
    element(
      "div",
      { class: "columns" },
      element(
        "div",
        {},
        boxesCard,
        card("Weights", sliders.element),
      ),
      element("div", {}, element("section", { class: "card" }, controls.componentBar, panels.result), ...panels.side),
    ),
    ...panels.wide,
    panels.live,
  );
  if (!linked) controls.nameScene(scenes[0].name);
  change({});
  if (linked) boxesCard.scrollIntoView({ block: "start" });
  photos.showFirst();
  tour.startOnFirstVisit();
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
    start(...(await Promise.all([fetchJson("/v1/scenes"), fetchJson("/v1/weights"), fetchJson("/photos")])));
  } catch (problem) {
    if (problem.status === 401) askForToken(load);
    else throw problem;
  }
}

load();
