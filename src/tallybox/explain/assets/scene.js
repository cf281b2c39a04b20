// The photo, or an empty canvas, with its boxes. Frames are kept from one update to the next, so that one that is being
// dragged, or has the focus, stays itself.
import { element, setAttributes, svgElement } from "./element.js";
import { objectColour } from "./colours.js";
import { boxRoles, isPaper, scoreName } from "./objects.js";
import { short } from "./format.js";

const MAX_TAGS = 12; // more would hide the boxes; then only counted ones have tags
const SMALL = 240; // pixels of a picture on which tags are numbers only
const KIND_ORDER = { leftover: 0, merged: 1, counted: 2 };

export function createScene(image, pointing) {
  const picture = svgElement("image");
  const frames = svgElement("g");
  const tags = svgElement("g", { "aria-hidden": "true" });
  const hover = (event) => event.buttons === 0 && pointing.at(...under(event).slice(0, 1));
  const svg = svgElement("svg", {
    class: "scene",
    role: "group",
    "aria-label": "The boxes",
    pointermove: hover,
    pointerdown: (event) => event.pointerType !== "mouse" && pointing.at(...under(event).slice(0, 1)),
    pointerleave: () => pointing.at(),
  });
  svg.append(picture, frames, tags);
  let drawn = []; // by box: { frame, role }
  let counting = null; // what is drawn
  let size = image;

  function resize(changed) {
    size = changed;
    svg.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    setAttributes(picture, { width: size.width, height: size.height });
    if (size.href) picture.setAttribute("href", size.href);
    else picture.removeAttribute("href");
  }

  function update(changed) {
    counting = changed;
    const roles = boxRoles(counting);
    while (drawn.length > roles.length) drawn.pop().frame.remove();
    while (drawn.length < roles.length) drawn.push({ frame: svgElement("rect", { "data-box": drawn.length }), role: null });
    roles.forEach((role, box) => {
      drawn[box].role = role;
      setFrame(drawn[box].frame, role, counting.boxes[box]);
    });
    stack();
    point(pointing.boxes());
  }

  // Where the pointer is, in pixels of the picture.
  function pointerPosition(event) {
    const area = svg.getBoundingClientRect();
    return [((event.clientX - area.left) / area.width) * size.width, ((event.clientY - area.top) / area.height) * size.height];
  }

  // The boxes under the pointer, the smallest first: a large one must not hide those inside it.
  function under(event) {
    const [x, y] = pointerPosition(event);
    const area = ([x1, y1, x2, y2]) => (x2 - x1) * (y2 - y1);
    return counting.boxes
      .map((corners, box) => ({ corners, box }))
      .filter(({ corners: [x1, y1, x2, y2] }) => x1 <= x && x <= x2 && y1 <= y && y <= y2)
      .sort((a, b) => area(a.corners) - area(b.corners) || a.box - b.box)
      .map(({ box }) => box);
  }

  function setFrame(frame, role, [x1, y1, x2, y2]) {
    setAttributes(frame, { x: x1, y: y1, width: Math.max(x2 - x1, 0), height: Math.max(y2 - y1, 0), class: `box ${role.kind}` });
    frame.style.stroke = role.colour ?? "";
  }

  // Counted boxes lie over merged ones, those over leftovers.
  function stack() {
    const order = [...drawn].sort(({ role: a }, { role: b }) => KIND_ORDER[a.kind] - KIND_ORDER[b.kind] || b.box - a.box);
    if (order.every(({ frame }, number) => frames.children[number] === frame)) return;
    const focused = document.activeElement;
    frames.append(...order.map(({ frame }) => frame));
    if (frames.contains(focused)) focused.focus({ preventScroll: true });
  }

  function point(boxes) {
    for (const { frame, role } of drawn) {
      frame.classList.toggle("pointed", boxes.includes(role.box));
      frame.classList.toggle("dimmed", boxes.length > 0 && !boxes.includes(role.box));
    }
    drawTags(boxes);
  }

  function drawTags(boxes) {
    if (!counting) return;
    const all = counting.isEdited && drawn.length <= MAX_TAGS;
    const chosen = drawn.filter(({ role }) => (boxes.length ? boxes.includes(role.box) : all || role.kind === "counted"));
    tags.replaceChildren(...chosen.flatMap(({ role }) => tag(role, boxes.length > 0)));
  }

  function tag(role, isPointed) {
    const isSmall = svg.clientWidth < SMALL;
    const unit = size.width / (svg.clientWidth || size.width);
    const [x1, y1, , y2] = counting.boxes[role.box];
    const share = `${isPaper(counting) ? "share" : "presence"} ${short(counting.presence[role.box])}`;
    const label = counting.labels ? `${counting.labels[role.box]}  ` : "";
    const text = isPointed
      ? `${role.box + 1}  ${label}${scoreName(counting)} ${short(counting.scores[role.box])}  ${share}`
      : `${role.box + 1}${counting.isEdited && !isSmall ? ` · ${short(counting.scores[role.box])}` : ""}`;
    const [width, height] = [(text.length * 6.7 + 10) * unit, 19 * unit];
    const left = Math.max(Math.min(x1, size.width - width), 0);
    // A box that lies on its counted one has its tag at its lower edge.
    const top = role.kind === "counted" || isPointed ? Math.max(y1 - height, 0) : Math.min(y2, size.height - height);
    return [
      svgElement("rect", { class: "tag-ground", x: left, y: top, width, height, rx: 3 * unit, fill: role.colour ?? "#5b636b" }),
      svgElement("text", { class: "tag", x: left + 5 * unit, y: top + 13.5 * unit, "font-size": 12 * unit }, text),
    ];
  }

  resize(image);
  pointing.listen(point);
  new ResizeObserver(() => drawTags(pointing.boxes())).observe(svg);
  return { element: svg, update, resize, pointerPosition, under, frame: (box) => drawn[box]?.frame };
}

export function sceneLegend() {
  const sample = (attributes) =>
    svgElement("svg", { viewBox: "0 0 22 10", "aria-hidden": "true" }, svgElement("rect", { x: 1, y: 1, width: 20, height: 8, fill: "none", ...attributes }));
  return element(
    "p",
    { class: "legend" },
    element("span", {}, sample({ stroke: objectColour(0), "stroke-width": 2 }), "counted"),
    element("span", {}, sample({ stroke: objectColour(0), "stroke-width": 1, "stroke-dasharray": "3 2" }), "merged: shows the same object as the counted box of its colour"),
    element("span", {}, sample({ stroke: "#9aa1a8", "stroke-width": 1 }), "not counted: too faint"),
  );
}
