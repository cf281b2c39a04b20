// The boxes of an explained count as they are drawn: clear, doubtful, duplicate of a counted one, or not counted.
import { short } from "./format.js";

const CLEAR = 0.5; // presence from which a counted box is clear

export function isCounter(explained) {
  return explained.component === "counter";
}

export function boxKind({ presence, duplicate_of }, box) {
  if (duplicate_of[box] < 0) return "other";
  if (duplicate_of[box] !== box) return "duplicate";
  return presence[box] >= CLEAR ? "clear" : "doubtful";
}

export function kindName(kind, duplicateOf) {
  return { clear: "counted, clear", doubtful: "counted, doubtful", duplicate: `duplicate of box ${duplicateOf + 1}`, other: "not counted" }[kind];
}

// One mark for each box; boxes that are not counted have no colour.
export function boxMarks(explained, colour, name = "") {
  return explained.boxes.map((corners, box) => {
    const kind = boxKind(explained, box);
    const share = `${isCounter(explained) ? "share" : "presence"} ${short(explained.presence[box])}`;
    const detail = [`${name} ${box + 1}`.trim(), `score ${short(explained.scores[box])}`, share, kindName(kind, explained.duplicate_of[box])].join(" · ");
    return { corners, kind, colour: kind === "other" ? null : colour, number: box + 1, detail };
  });
}

// The detector's other boxes: an estimator takes the best ones only.
export function otherMarks(boxes, first, name) {
  return boxes.map((corners, index) => ({ corners, kind: "other", colour: null, number: first + index + 1, detail: `${name} ${first + index + 1} · not counted` }));
}

// How many boxes there are of each kind.
export function kindCounts(marks) {
  const counts = { clear: 0, doubtful: 0, duplicate: 0, other: 0 };
  for (const { kind } of marks) counts[kind] += 1;
  return counts;
}
