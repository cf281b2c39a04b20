// What the pointer is on: no box, one box, or a pair of boxes. Every part of the page hears of it.

export function createPointing() {
  const listeners = [];
  let boxes = [];

  function at(...pointed) {
    if (pointed.length === boxes.length && pointed.every((box, index) => box === boxes[index])) return;
    boxes = pointed;
    for (const listener of listeners) listener(boxes);
  }

  function listen(listener) {
    listeners.push(listener);
  }

  // Keep the class of a container's children, one for each box, to what is pointed at.
  function mark(container) {
    listen(() => {
      for (const child of container.children) child.classList.toggle("pointed", boxes.includes(Number(child.dataset.box)));
    });
  }

  // Attributes of an element that points at its box.
  function attributes(box) {
    return { "data-box": box, pointerenter: () => at(box), pointerleave: () => at() };
  }

  return { boxes: () => boxes, at, listen, mark, attributes };
}
