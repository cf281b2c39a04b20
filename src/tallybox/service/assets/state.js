// The scene that is being explored, and its form in a link.
import { clamp } from "./format.js";

export const MAX_BOXES = 80;
export const TABS = ["photo", "play", "hood"];
const KINDS = ["drawn", "toy", "photo"]; // of scenes

// Numbers are rounded when they are set, so that a link and the page have the same ones.
export function roundedCorner(value) {
  return Math.round(value * 10) / 10;
}

export function roundedScore(value) {
  return Math.round(clamp(value, 0, 1) * 1000) / 1000;
}

export function emptyState() {
  return { tab: "photo", kind: "drawn", scene: "", category: "", component: "counter", parameters: "untrained", activations: null, maxObjects: 10, nms: [0.5, 0.5], width: 640, height: 400, boxes: [], attention: [] };
}

// A new scene starts with a component that suits it.
export function sceneState(state, { name = "", kind = "drawn", category = "", width, height, boxes, attention }) {
  const component = kind === "photo" ? "estimator" : state.component === "estimator" ? "counter" : state.component;
  return { ...state, kind, scene: name, category, component, parameters: "untrained", activations: null, width, height, boxes: boxes.map((box) => [...box]), attention: [...attention] };
}

export function request(state, context) {
  const { component, boxes, attention, activations, category } = state;
  const common = { component, boxes, attention, nms: { iou: state.nms[0], score: state.nms[1] } };
  if (component === "estimator") return { ...common, category, ...(context ? { context } : {}) };
  return { ...common, max_objects: state.maxObjects, ...(activations ? { activations } : { parameters: state.parameters }) };
}

export function toHash(state) {
  const bytes = new TextEncoder().encode(JSON.stringify(state));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// A link may come from anybody: anything that is not a scene is ignored.
export function fromHash(hash) {
  try {
    const bytes = Uint8Array.from(atob(hash.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
    return checked(JSON.parse(new TextDecoder().decode(bytes)));
  } catch {
    return null;
  }
}

function checked(scene) {
  const state = emptyState();
  for (const key of Object.keys(state)) {
    if (!(key in scene)) return null;
    state[key] = scene[key];
  }
  const isShare = (value) => Number.isFinite(value) && value >= 0 && value <= 1;
  const isBox = (box) => Array.isArray(box) && box.length === 4 && box.every(Number.isFinite) && box[0] <= box[2] && box[1] <= box[3];
  const isRow = (row) => Array.isArray(row) && row.length >= 2 && row.length <= 65 && row.every(isShare);
  const isScene =
    TABS.includes(state.tab) &&
    KINDS.includes(state.kind) &&
    ["counter", "presence", "estimator"].includes(state.component) &&
    [state.parameters, state.scene, state.category].every((text) => typeof text === "string") &&
    (state.activations === null || (Array.isArray(state.activations) && state.activations.length === 8 && state.activations.every(isRow))) &&
    Number.isInteger(state.maxObjects) && state.maxObjects >= 1 && state.maxObjects <= 100 &&
    Array.isArray(state.nms) && state.nms.length === 2 && state.nms.every(isShare) &&
    [state.width, state.height].every((side) => Number.isFinite(side) && side >= 1 && side <= 1e5) &&
    Array.isArray(state.boxes) && state.boxes.length <= MAX_BOXES && state.boxes.every(isBox) &&
    Array.isArray(state.attention) && state.attention.length === state.boxes.length && state.attention.every(isShare);
  return isScene ? state : null;
}
