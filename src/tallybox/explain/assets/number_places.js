// Where the number of each box fits: in a free corner of it, or beside a small box if it hides no other.

export function numberPlaces(boxes, radius, { width, height }) {
  const taken = [];
  const isRoomy = ([x1, y1, x2, y2]) => Math.min(x2 - x1, y2 - y1) >= 2 * radius;
  const small = boxes.filter((box) => !isRoomy(box));

  function isFree([x, y], hidden) {
    return (
      x >= radius && x <= width - radius && y >= radius && y <= height - radius &&
      taken.every(([otherX, otherY]) => Math.hypot(x - otherX, y - otherY) >= 2 * radius) &&
      !hidden.some(([x1, y1, x2, y2]) => x1 < x + radius && x - radius < x2 && y1 < y + radius && y - radius < y2)
    );
  }

  return boxes.map((box) => {
    const [x1, y1, x2, y2] = box;
    const inset = isRoomy(box) ? radius : -radius;
    const corners = [y1 + inset, y2 - inset].flatMap((y) => [x1 + radius, x2 - radius].map((x) => [x, y]));
    const hidden = isRoomy(box) ? [] : small.filter((other) => other !== box);
    const place = corners.find((corner) => isFree(corner, hidden)) ?? (isRoomy(box) ? corners[0] : null);
    if (place) taken.push(place);
    return place;
  });
}
