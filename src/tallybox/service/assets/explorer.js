// The explorer: three tabs around one scene. The service computes every number; the page only draws.
import { element } from "./element.js";
import { createPointing } from "./pointing.js";
import { createPhotoTab } from "./photo_tab.js";
import { createPlayTab } from "./play_tab.js";
import { createHoodTab } from "./hood_tab.js";
import { createExplainer, fetchJson, setToken } from "./client.js";
import { MAX_BOXES, emptyState, fromHash, request, roundedCorner, roundedScore, sceneState, toHash } from "./state.js";

const CANVAS = 640; // the longer side of the canvas that a photo is laid on
const LABELS = { photo: "Photo", play: "Play", hood: "Under the hood" };
const LINKS = [["Paper", "https://arxiv.org/abs/1802.05766"], ["API", "/openapi.json"]];

function start(scenes, parameterSets, samples) {
  const pointing = createPointing();
  let state = fromHash(location.hash.slice(1)) ?? sceneState(emptyState(), scenes[0]);
  let photo = null; // behind the boxes: { href, context }; stays in the browser
  let answer = null;

  const problem = element("p", { class: "problem", role: "alert" });
  const showProblem = (text) => (problem.textContent = text);
  const shared = { pointing, state: () => state, change };
  const tabs = {
    photo: createPhotoTab(samples, { onMove: showCategory }),
    play: createPlayTab({ ...shared, scenes, parameterSets, showScene, onProblem: showProblem }),
    hood: createHoodTab({ ...shared, scenes }),
  };
  const buttons = Object.entries(LABELS).map(([name, label]) =>
    element("button", { type: "button", role: "tab", id: `tab-${name}`, "data-tab": name, click: () => change({ tab: name }) }, label),
  );
  const root = document.getElementById("explorer");
  const explain = createExplainer({
    onAnswer(received) {
      answer = received;
      showProblem("");
      draw();
    },
    onProblem: (failed) => showProblem(failed.message),
    onIdle: () => root.setAttribute("aria-busy", "false"),
  });

  function change(changes) {
    state = { ...state, ...changes };
    history.replaceState(null, "", `#${toHash(state)}`);
    draw();
    root.setAttribute("aria-busy", "true");
    const sent = state;
    explain(request(sent, photo?.context), () => sent.component !== state.component || sent.boxes.length !== state.boxes.length);
  }

  function showScene(scene) {
    photo = null;
    tabs.play.deselect();
    change(sceneState(state, scene));
  }

  // The boxes of a category of a photo; those of other categories are the estimator's context.
  function showCategory({ href, size, detections }, { name, category_id, boxes, scores }) {
    const scale = CANVAS / Math.max(...size);
    const scaled = (all) => all.map((corners) => corners.map((corner) => roundedCorner(corner * scale)));
    const [width, height] = size.map((side) => Math.max(Math.round(side * scale), 1));
    const others = detections.category_ids.flatMap((id, box) => (id === category_id ? [] : [box]));
    const pick = (values) => others.map((box) => values[box]);
    photo = { href, context: { boxes: scaled(pick(detections.boxes)), scores: pick(detections.scores), category_ids: pick(detections.category_ids), size: [width, height] } };
    tabs.play.deselect();
    const scene = { name: "photo", kind: "photo", category: name, width, height, boxes: scaled(boxes).slice(0, MAX_BOXES), attention: scores.slice(0, MAX_BOXES).map(roundedScore) };
    change({ ...sceneState(state, scene), tab: "play" });
  }

  // The answer of the service, with the boxes as they are now; before it arrives, none is counted.
  function explained() {
    const { component, boxes, attention: scores } = state;
    const fits = answer?.presence.length === boxes.length && (answer.low !== null) === (component === "estimator") && (component === "estimator" || answer.component === component);
    const known = fits ? answer : { component, presence: boxes.map(() => 0), duplicate_of: boxes.map(() => -1) };
    return { ...known, boxes, scores, isComplete: fits };
  }

  function draw() {
    for (const button of buttons) button.setAttribute("aria-selected", button.dataset.tab === state.tab);
    for (const [name, tab] of Object.entries(tabs)) tab.element.hidden = name !== state.tab;
    const current = explained();
    root.classList.toggle("waiting", !current.isComplete);
    if (state.tab === "photo") return;
    tabs[state.tab].update(current, photo?.href ?? null);
  }

  window.addEventListener("hashchange", () => {
    const arrived = fromHash(location.hash.slice(1));
    if (arrived) change(arrived);
  });

  root.replaceChildren(element("div", { class: "tabs", role: "tablist" }, ...buttons), problem, ...Object.values(tabs).map((tab) => tab.element));
  change({});
  tabs.photo.showFirst();
}

function askForToken(retry) {
  const field = element("input", { type: "password", id: "token", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    setToken(field.value);
    retry();
  };
  document.getElementById("explorer").replaceChildren(
    element("form", { class: "card", submit }, element("p", {}, element("label", { for: "token" }, "This service needs a token. "), field, " ", element("button", {}, "Continue"))),
  );
}

async function load() {
  try {
    start(...(await Promise.all([fetchJson("/v1/scenes"), fetchJson("/v1/parameters"), fetchJson("/v1/photos")])));
  } catch (problem) {
    if (problem.status === 401) askForToken(load);
    else throw problem;
  }
}

document.getElementById("links").append(...LINKS.map(([text, href]) => element("a", { href, rel: "noreferrer" }, text)));
load();
