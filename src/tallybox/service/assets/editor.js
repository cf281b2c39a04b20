// Drawing, moving and resizing boxes, with the pointer and with the keyboard.
import { setAttributes, svgElement } from "./element.js";
import { clamp } from "./format.js";
import { MAX_BOXES, roundedCorner } from "./state.js";

const MIN_SIZE = 4; // pixels of the canvas a drawn box must have
const HANDLE = 9; // pixels on the screen

export function createEditor(scene, { state, change, select, selected }) {
  const handles = svgElement("g");
  const svg = scene.element;
  svg.append(handles);
  svg.classList.add("editable");
  let drag = null;

  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const from = scene.pointerPosition(event);
    const { corner } = event.target.dataset;
    const under = scene.under(event);
    if (corner !== undefined) drag = { kind: "resize", box: selected(), corner: Number(corner) };
    else if (under.length) drag = moved(under, from);
    else if (state().boxes.length < MAX_BOXES) drag = { kind: "draw", from };
    if (!drag) return;
    event.preventDefault();
    svg.setPointerCapture(event.pointerId);
    if (drag.kind === "move") choose(drag.box);
  });

  // The selected box goes first, wherever it lies; a click on it without moving it goes on to the one below.
  function moved(under, from) {
    const index = under.indexOf(selected());
    const box = index < 0 ? under[0] : selected();
    const next = index < 0 ? box : under[(index + 1) % under.length];
    return { kind: "move", box, next, from, original: state().boxes[box], isMoved: false };
  }

  svg.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [x, y] = scene.pointerPosition(event);
    if (drag.kind === "move") {
      drag.isMoved = true;
      move(drag.box, drag.original, x - drag.from[0], y - drag.from[1]);
    }
    if (drag.kind === "resize") resize(drag.box, drag.corner, x, y);
    if (drag.kind === "draw" && Math.hypot(x - drag.from[0], y - drag.from[1]) >= MIN_SIZE) {
      const box = add([...drag.from, ...drag.from], 0.8);
      drag = { kind: "resize", box, corner: 3 };
      resize(box, 3, x, y);
    }
  });

  svg.addEventListener("pointerup", () => {
    if (drag?.kind === "move" && !drag.isMoved) choose(drag.next);
    drag = null;
  });
  svg.addEventListener("pointercancel", () => (drag = null));

  svg.addEventListener("keydown", (event) => {
    const box = event.target.dataset.box === undefined ? null : Number(event.target.dataset.box);
    if (box === null) return;
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in moves) {
      const step = event.ctrlKey ? 1 : 8;
      const [dx, dy] = moves[event.key].map((way) => way * step);
      const original = state().boxes[box];
      if (event.shiftKey) resize(box, 3, original[2] + dx, original[3] + dy);
      else move(box, original, dx, dy);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      remove(box);
    } else {
      return;
    }
    event.preventDefault();
  });

  svg.addEventListener("focusin", (event) => {
    if (event.target.dataset.box !== undefined && !scene.isStacking()) select(Number(event.target.dataset.box));
  });

  function move(box, [x1, y1, x2, y2], dx, dy) {
    const { width, height } = state();
    const [right, down] = [clamp(dx, -x1, width - x2), clamp(dy, -y1, height - y2)];
    set(box, [x1 + right, y1 + down, x2 + right, y2 + down]);
  }

  // Corners are numbered 0 1 over 2 3; a corner that is dragged past the opposite one turns the box over.
  function resize(box, corner, x, y) {
    const { width, height, boxes } = state();
    const [x1, y1, x2, y2] = boxes[box];
    const fixed = [corner % 2 ? x1 : x2, corner < 2 ? y2 : y1];
    const moved = [clamp(x, 0, width), clamp(y, 0, height)];
    if (drag) drag.corner = (moved[0] >= fixed[0] ? 1 : 0) + (moved[1] >= fixed[1] ? 2 : 0);
    set(box, [Math.min(fixed[0], moved[0]), Math.min(fixed[1], moved[1]), Math.max(fixed[0], moved[0]), Math.max(fixed[1], moved[1])]);
  }

  function set(box, corners) {
    change({ boxes: state().boxes.map((old, number) => (number === box ? corners.map(roundedCorner) : old)) });
  }

  function add(corners, score) {
    const box = state().boxes.length;
    change({ scene: "", boxes: [...state().boxes, corners.map(roundedCorner)], attention: [...state().attention, score] });
    choose(box);
    return box;
  }

  function addInTheMiddle() {
    const { width, height } = state();
    if (state().boxes.length >= MAX_BOXES) return;
    add([0.4 * width, 0.35 * height, 0.6 * width, 0.65 * height], 0.8);
  }

  function remove(box) {
    const without = (list) => list.filter((_, number) => number !== box);
    change({ scene: "", boxes: without(state().boxes), attention: without(state().attention) });
    select(state().boxes.length ? Math.min(box, state().boxes.length - 1) : null);
  }

  function choose(box) {
    select(box);
    scene.frame(box)?.focus({ preventScroll: true });
  }

  function update() {
    const { boxes, attention, width } = state();
    boxes.forEach((_, box) => {
      const frame = scene.frame(box);
      const label = `Box ${box + 1}, score ${attention[box]}. Arrow keys move it, with Shift they resize it, Delete removes it.`;
      setAttributes(frame, { tabindex: 0, role: "button", "aria-label": label });
      frame.classList.toggle("selected", box === selected());
    });
    if (!boxes[selected()]) {
      handles.replaceChildren();
      return;
    }
    const side = (HANDLE * width) / (svg.clientWidth || width); // of a handle, in pixels of the canvas
    const [x1, y1, x2, y2] = boxes[selected()];
    const corners = [[x1, y1], [x2, y1], [x1, y2], [x2, y2]];
    while (handles.childElementCount < 4) handles.append(svgElement("rect", { class: "handle", "data-corner": handles.childElementCount }));
    corners.forEach(([x, y], number) => setAttributes(handles.children[number], { x: x - side / 2, y: y - side / 2, width: side, height: side }));
  }

  return { update, addInTheMiddle, remove };
}
