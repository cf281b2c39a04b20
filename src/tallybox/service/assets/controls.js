// Choosing: the scene, the photo, the component and its weights; and taking a scene along.
import { element } from "./element.js";
import { fetchJson } from "./client.js";
import { download, scenePicture } from "./downloads.js";
import { pythonCode } from "./python_code.js";

export function createControls({ scenes, weightSets, state, answer, counting, photo, change, showScene, addBox, problem }) {
  const sceneList = element(
    "select",
    { id: "scene", "aria-label": "Scene", change: () => chooseScene(sceneList.value) },
    element("option", { value: "" }, "Choose a scene"),
    ...scenes.map(({ name, label }) => element("option", { value: name }, label)),
    element("option", { value: "toy" }, "A sample of the toy task"),
    element("option", { value: "empty" }, "Empty canvas"),
  );
  const [side, noise] = [["l", "side-length"], ["q", "noise"]].map(([letter, id]) => ({
    letter,
    field: element("input", { type: "number", id, min: 0, max: 1, step: 0.05, value: id === "noise" ? 0.25 : 0.5, change: () => drawToy() }),
  }));
  let seed = 5;
  const truth = element("span", { class: "small quiet", id: "truth" });
  const toyBar = element(
    "div",
    { class: "toolbar", hidden: "" },
    ...[side, noise].map(({ letter, field }) => element("label", {}, letter, field)),
    element("button", { type: "button", click: () => ((seed += 1), drawToy()) }, "Another"),
    truth,
  );

  function chooseScene(name) {
    toyBar.hidden = name !== "toy";
    if (name === "toy") drawToy();
    else if (name === "empty") showScene({ width: 640, height: 400, boxes: [], attention: [] });
    else if (name) showScene(scenes.find((scene) => scene.name === name));
  }

  async function drawToy() {
    try {
      const drawn = await fetchJson(`/v1/scenes/toy?side_length=${encodeURIComponent(side.field.value)}&noise=${encodeURIComponent(noise.field.value)}&seed=${seed}`);
      showScene(drawn);
      truth.textContent = `The true count is ${drawn.true_count}.`;
    } catch (failed) {
      problem(failed.message);
    }
  }

  const components = [["counter", "The paper's component"], ["presence", "Presence counting"]].map(([name, label]) => ({
    name,
    button: element("button", { type: "button", "data-component": name, click: () => change({ component: name, weights: "untrained", activations: null }) }, label),
  }));
  const weightList = element("select", { id: "weights", change: () => change({ weights: weightList.value, activations: null }) });

  const copied = element("span", { class: "small quiet", role: "status" });
  async function copyLink() {
    try {
      await navigator.clipboard.writeText(location.href);
      copied.textContent = "Copied.";
    } catch {
      copied.textContent = "The address of this page is the link.";
    }
  }

  function saveCode() {
    const set = weightSets.presence.find(({ name }) => name === state().weights);
    download("scene.py", pythonCode(state(), answer(), set?.weights), "text/x-python");
  }

  const save = (id, label, click) => element("button", { type: "button", id, click }, label);
  let listedFor = null;

  function update() {
    const { component, weights, activations } = state();
    for (const { name, button } of components) button.setAttribute("aria-pressed", name === component);
    if (listedFor !== component) {
      listedFor = component;
      weightList.replaceChildren(...weightSets[component].map(({ name, label }) => element("option", { value: name }, label)), element("option", { value: "bent", hidden: "" }, "bent by hand"));
    }
    weightList.value = activations ? "bent" : weights;
  }

  return {
    update,
    nameScene(name) {
      sceneList.value = name;
      toyBar.hidden = true;
    },
    sceneBar: element(
      "div",
      {},
      element("div", { class: "toolbar" }, sceneList, element("span", { class: "gap" }), element("button", { type: "button", id: "add", click: addBox }, "Add a box")),
      toyBar,
    ),
    componentBar: element(
      "div",
      { class: "toolbar" },
      element("div", { class: "choices", role: "group", "aria-label": "Component" }, ...components.map(({ button }) => button)),
      element("label", { for: "weights" }, "Weights ", weightList),
    ),
    shareBar: element(
      "div",
      { class: "toolbar", role: "group", "aria-label": "Take the scene along" },
      copied,
      save("share", "Copy link", copyLink),
      save("save-json", "JSON", () => download("scene.json", JSON.stringify({ scene: state(), answer: answer() }, null, 1), "application/json")),
      save("save-png", "PNG", async () => download("scene.png", await scenePicture(state(), counting(), photo()))),
      save("save-python", "Python", saveCode),
    ),
  };
}
