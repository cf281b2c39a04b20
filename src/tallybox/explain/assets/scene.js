// The photo, or an empty canvas, with its boxes. Frames are kept from one update to the next, so that one that is being
// dragged, or has the focus, stays itself.
import { element, setAttributes, svgElement } from "./element.js";
import { categoryColour, inkOn } from "./colours.js";
import { numberPlaces } from "./number_places.js";

const TAG = 11; // radius of a number's disc, in pixels on the screen
const MAX_TAGS = 12; // of an edited scene with more boxes, only counted ones have numbers
const KIND_ORDER = { other: 0, duplicate: 1, doubtful: 2, clear: 3 };

export function createScene(image, pointing, { isEditable = false } = {}) {
  const picture = svgElement("image");
  const backdrop = svgElement("g", { "aria-hidden": "true" });
  const frames = svgElement("g");
  const tags = svgElement("g", { "aria-hidden": "true" });
  const pointed = (event) => pointing.at(...under(event).slice(0, 1));
  const svg = svgElement("svg", {
    class: "scene",
    role: "group",
    "aria-label": "Boxes",
    pointermove: (event) => event.buttons === 0 && pointed(event),
    pointerdown: (event) => event.pointerType !== "mouse" && pointed(event),
    pointerleave: () => pointing.at(),
  });
  svg.append(backdrop, picture, frames, tags);
  let drawn = []; // by box: { frame, mark }
  let view = "counted"; // "photo": no boxes; "boxes": all; "counted": those that count
  let size = image;
  let stacking = false;

  function resize(changed) {
    size = changed;
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    setAttributes(picture, { width: size.width, height: size.height });
    if (size.href) picture.setAttribute("href", size.href);
    else picture.removeAttribute("href");
  }

  function update(marks) {
    while (drawn.length > marks.length) drawn.pop().frame.remove();
    while (drawn.length < marks.length) drawn.push({ frame: newFrame(drawn.length), mark: null });
    marks.forEach((mark, box) => {
      drawn[box].mark = mark;
      setFrame(drawn[box].frame, mark);
    });
    stack();
    point(pointing.boxes());
  }

  // A dark line under the coloured one, so that it shows on any photo.
  function newFrame(box) {
    return svgElement("g", { class: "frame", "data-box": box }, svgElement("rect", { class: "shade" }), svgElement("rect", { class: "line" }));
  }

  function setFrame(frame, { kind, colour, corners: [x1, y1, x2, y2] }) {
    frame.setAttribute("class", `frame ${kind}`);
    for (const rect of frame.children) setAttributes(rect, { x: x1, y: y1, width: Math.max(x2 - x1, 0), height: Math.max(y2 - y1, 0) });
    frame.lastChild.style.stroke = colour ?? "";
  }

  function isShown({ kind }) {
    if (isEditable || view === "boxes") return true;
    return view === "counted" && (kind === "clear" || kind === "doubtful");
  }

  // Where the pointer is, in pixels of the picture.
  function pointerPosition(event) {
    const area = svg.getBoundingClientRect();
    return [((event.clientX - area.left) / area.width) * size.width, ((event.clientY - area.top) / area.height) * size.height];
  }

  // The shown boxes under the pointer, the smallest first: a large one must not hide those inside it.
  function under(event) {
    const [x, y] = pointerPosition(event);
    const area = ([x1, y1, x2, y2]) => (x2 - x1) * (y2 - y1);
    return drawn
      .map(({ mark }, box) => ({ mark, corners: mark.corners, box }))
      .filter(({ mark, corners: [x1, y1, x2, y2] }) => isShown(mark) && x1 <= x && x <= x2 && y1 <= y && y <= y2)
      .sort((a, b) => area(a.corners) - area(b.corners) || a.box - b.box)
      .map(({ box }) => box);
  }

  // Clear boxes lie on top. Frames move only if their order changes, and without a change of the focus.
  function stack() {
    const order = [...drawn].sort(({ mark: a }, { mark: b }) => KIND_ORDER[a.kind] - KIND_ORDER[b.kind]);
    if (order.every(({ frame }, number) => frames.children[number] === frame)) return;
    const focused = frames.contains(document.activeElement) ? document.activeElement : null;
    stacking = true;
    frames.append(...order.map(({ frame }) => frame));
    focused?.focus({ preventScroll: true });
    stacking = false;
  }

  function point(boxes) {
    drawn.forEach(({ frame, mark }, box) => {
      const isPointed = boxes.includes(box);
      frame.classList.toggle("pointed", isPointed);
      frame.classList.toggle("dimmed", boxes.length > 0 && !isPointed);
      frame.classList.toggle("hidden", !isShown(mark) && !isPointed);
    });
    drawTags(boxes);
  }

  function drawTags(boxes) {
    const unit = size.width / (svg.clientWidth || size.width);
    const isCounted = ({ kind }) => kind === "clear" || kind === "doubtful";
    const hasNumber = (mark) => (isEditable ? drawn.length <= MAX_TAGS || isCounted(mark) : view === "counted" && isShown(mark));
    const numbered = drawn.filter(({ mark }, box) => (boxes.length ? boxes.includes(box) : hasNumber(mark))).map(({ mark }) => mark);
    numbered.sort((a, b) => KIND_ORDER[b.kind] - KIND_ORDER[a.kind]); // clear ones choose first
    const places = numberPlaces(numbered.map(({ corners }) => corners), TAG * unit, size);
    tags.replaceChildren(
      ...numbered.flatMap((mark, index) => (places[index] ? disc(mark, places[index], unit) : [])),
      ...(boxes.length === 1 && drawn[boxes[0]] ? detailTag(drawn[boxes[0]].mark, unit) : []),
    );
  }

  function disc({ kind, colour, number }, [x, y], unit) {
    const ground = kind === "clear" ? colour : "#ffffff";
    return [
      svgElement("circle", { class: "disc", cx: x, cy: y, r: TAG * unit, fill: ground, "stroke-width": 1.5 * unit }),
      svgElement("text", { class: "tag", x, y: y + 4 * unit, "font-size": 12 * unit, "text-anchor": "middle", fill: inkOn(ground) }, String(number)),
    ];
  }

  // One line, or several on a narrow screen.
  function detailTag({ corners: [x1, y1, , y2], detail }, unit) {
    const lines = (detail.length * 6.6 + 12) * unit <= size.width ? [detail] : detail.split(" · ");
    const [width, height] = [(Math.max(...lines.map((line) => line.length)) * 6.6 + 12) * unit, (16 * lines.length + 4) * unit];
    const left = Math.max(Math.min(x1, size.width - width), 0);
    const top = y1 >= height ? y1 - height : Math.min(y2, size.height - height);
    return [
      svgElement("rect", { class: "tag-ground", x: left, y: top, width, height, rx: 4 * unit }),
      ...lines.map((line, row) => svgElement("text", { class: "tag", x: left + 6 * unit, y: top + (14 + 16 * row) * unit, "font-size": 11 * unit, fill: "#fff" }, line)),
    ];
  }

  function show(chosen) {
    view = chosen;
    svg.dataset.shown = view;
    point(pointing.boxes());
  }

  resize(image);
  pointing.listen(point);
  new ResizeObserver(() => drawTags(pointing.boxes())).observe(svg);
  return { element: svg, backdrop, update, resize, show, pointerPosition, under, shown: () => drawn.map(({ mark }) => mark).filter(isShown), isStacking: () => stacking, frame: (box) => drawn[box]?.frame };
}

// The switch between the photo alone, all boxes of the detector, and the counted ones.
export function createViewSwitch(scene) {
  const views = ["photo", "boxes", "counted"].map((name) => ({
    name,
    button: element("button", { type: "button", "data-view": name, click: () => choose(name) }),
  }));

  function choose(name) {
    scene.show(name);
    for (const view of views) view.button.setAttribute("aria-pressed", view.name === name);
  }

  return {
    element: element("div", { class: "choices", role: "group", "aria-label": "Shown on the photo" }, ...views.map(({ button }) => button)),
    choose,
    update({ boxes, counted }) {
      const labels = { photo: "Photo", boxes: `Detector: ${boxes} boxes`, counted: `Counted: ${counted}` };
      for (const { name, button } of views) button.textContent = labels[name];
    },
  };
}

// With ``counts``, how many boxes there are of each kind.
export function sceneLegend(kinds, { counts = null, colour = categoryColour(0) } = {}) {
  const lines = {
    clear: [{ stroke: colour, "stroke-width": 2.5 }, "clear"],
    doubtful: [{ stroke: colour, "stroke-width": 2.5, "stroke-dasharray": "5 3" }, "doubtful (presence below 50 %)"],
    duplicate: [{ stroke: colour, "stroke-width": 1 }, counts?.duplicate > 1 ? "duplicates" : "duplicate"],
    other: [{ stroke: "#9aa1a8", "stroke-width": 1 }, "not counted"],
  };
  const sample = (attributes) =>
    svgElement("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, svgElement("rect", { x: 2, y: 2, width: 22, height: 8, fill: "none", ...attributes }));
  return element("p", { class: "legend" }, ...kinds.filter((kind) => !counts || counts[kind]).map((kind) => element("span", { class: kind }, sample(lines[kind][0]), `${counts ? `${counts[kind]} ` : ""}${lines[kind][1]}`)));
}
