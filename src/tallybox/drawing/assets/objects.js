// Which object each box belongs to, as it is drawn: counted, merged into a counted one, or left over.

export function isPaper(counting) {
  return counting.component === "paper";
}

// A VQA model gives boxes attention, a detector gives them scores.
export function scoreName(counting) {
  return counting.answers ? "attention" : "score";
}

export function boxRoles(counting) {
  const counted = counting.merged_into.flatMap((into, box) => (into === box ? [box] : []));
  return counting.merged_into.map((into, box) => {
    if (into < 0) return { box, kind: "leftover", object: null };
    return { box, kind: into === box ? "counted" : "merged", object: counted.indexOf(into) };
  });
}
