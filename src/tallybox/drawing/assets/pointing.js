// What the pointer is on: no box, one box, or a pair of boxes. Every part of the page hears of it.

export function createPointing() {
  const listeners = [];
  let boxes = [];
  return {
    boxes: () => boxes,
    at(...pointed) {
      if (pointed.length === boxes.length && pointed.every((box, index) => box === boxes[index])) return;
      boxes = pointed;
      for (const listener of listeners) listener(boxes);
    },
    listen(listener) {
      listeners.push(listener);
    },
  };
}
