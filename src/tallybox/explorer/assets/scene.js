// The photo, or an empty canvas, with its boxes.
import { svgElement, element } from "./element.js";
import { objectColour } from "./colours.js";
import { boxRoles, isPaper } from "./objects.js";
import { short } from "./format.js";

const KIND_ORDER = { leftover: 0, merged: 1, counted: 2 };

export function createScene(image, pointing) {
  const svg = svgElement("svg", {
    class: "scene",
    viewBox: `0 0 ${image.width} ${image.height}`,
    role: "img",
    "aria-label": "The boxes",
    pointerleave: () => pointing.at(),
  });
  const picture = svgElement("image", { width: image.width, height: image.height });
  if (image.href) picture.setAttribute("href", image.href);
  const frames = svgElement("g");
  const tags = svgElement("g");
  svg.append(picture, frames, tags);
  let drawn = [];
  let shown = null;

  function update(counting) {
    shown = counting;
    const roles = boxRoles(counting);
    const order = [...roles].sort((one, other) => KIND_ORDER[one.kind] - KIND_ORDER[other.kind] || other.box - one.box);
    drawn = [];
    frames.replaceChildren(
      ...order.map((role) => {
        const [x1, y1, x2, y2] = counting.boxes[role.box];
        const frame = svgElement("rect", {
          class: `box ${role.kind}`,
          x: x1,
          y: y1,
          width: Math.max(x2 - x1, 0),
          height: Math.max(y2 - y1, 0),
          "data-box": role.box,
          pointerenter: () => pointing.at(role.box),
          pointerdown: () => pointing.at(role.box),
        });
        if (role.object !== null) frame.style.stroke = objectColour(role.object);
        drawn[role.box] = { frame, role };
        return frame;
      }),
    );
    point(pointing.boxes());
  }

  function point(boxes) {
    for (const { frame, role } of drawn.filter(Boolean)) {
      frame.classList.toggle("pointed", boxes.includes(role.box));
      frame.classList.toggle("dimmed", boxes.length > 0 && !boxes.includes(role.box));
    }
    drawTags(boxes);
  }

  function drawTags(boxes) {
    if (!shown) return;
    const unit = image.width / (svg.clientWidth || image.width);
    tags.replaceChildren(
      ...drawn.filter(Boolean).flatMap(({ role }) => {
        const isPointed = boxes.includes(role.box);
        if (boxes.length ? !isPointed : role.kind !== "counted") return [];
        return tag(role, unit, isPointed);
      }),
    );
  }

  function tag(role, unit, isPointed) {
    const [x1, y1] = shown.boxes[role.box];
    const share = `${isPaper(shown) ? "share" : "presence"} ${short(shown.presence[role.box])}`;
    const text = isPointed
      ? `${role.box + 1}  score ${short(shown.scores[role.box])}  ${share}`
      : `${role.box + 1} · ${short(shown.presence[role.box])}`;
    const [width, height] = [(text.length * 6.7 + 10) * unit, 19 * unit];
    const left = Math.max(Math.min(x1, image.width - width), 0);
    const top = Math.max(y1 - height, 0);
    const colour = role.object === null ? "#5b636b" : objectColour(role.object);
    return [
      svgElement("rect", { class: "tag-ground", x: left, y: top, width, height, rx: 3 * unit, fill: colour }),
      svgElement("text", { class: "tag", x: left + 5 * unit, y: top + 13.5 * unit, "font-size": 12 * unit }, text),
    ];
  }

  pointing.listen(point);
  new ResizeObserver(() => drawTags(pointing.boxes())).observe(svg);
  return { element: svg, update };
}

export function sceneLegend() {
  const sample = (attributes) => svgElement("svg", { viewBox: "0 0 22 10", "aria-hidden": "true" }, svgElement("rect", { x: 1, y: 1, width: 20, height: 8, fill: "none", ...attributes }));
  return element(
    "p",
    { class: "legend" },
    element("span", {}, sample({ stroke: objectColour(0), "stroke-width": 2 }), "counted"),
    element("span", {}, sample({ stroke: objectColour(0), "stroke-width": 1, "stroke-dasharray": "3 2" }), "another box of the same colour stood for it"),
    element("span", {}, sample({ stroke: "#9aa1a8", "stroke-width": 1 }), "left over"),
  );
}
