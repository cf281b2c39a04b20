// Which object each box belongs to, as it is drawn: counted, merged into a counted one, or left over.
import { objectColour } from "./colours.js";

export function isPaper(counting) {
  return counting.component === "counter";
}

// A VQA model gives boxes attention, a detector gives them scores.
export function scoreName(counting) {
  return counting.answers ? "attention" : "score";
}

// A box that is left over has no colour.
export function boxRoles(counting) {
  const counted = counting.merged_into.flatMap((into, box) => (into === box ? [box] : []));
  return counting.merged_into.map((into, box) => {
    if (into < 0) return { box, kind: "leftover", colour: null };
    return { box, kind: into === box ? "counted" : "merged", colour: objectColour(counted.indexOf(into)) };
  });
}
