// A program that computes the numbers of a scene anew with the library alone.

export function pythonCode(state, answer, presenceWeights) {
  const head = `import torch
import tallybox

boxes = torch.tensor(${matrix(state.boxes)}${state.boxes.length ? "" : ".reshape(0, 4)"})
attention = torch.tensor(${vector(state.attention)})
`;
  return state.component === "counter" ? head + paper(state, answer) : head + presence(state, presenceWeights);
}

function paper(state, answer) {
  const knots = answer.functions.activations;
  const isUntrained = !state.activations && state.weights === "untrained";
  const bent = isUntrained
    ? ""
    : `
# f1 ... f8 at their knots; a segment's weight is how much it rises.
knots = torch.tensor(${matrix(knots)})
with torch.no_grad():
    counter.weight.copy_(knots.diff().unsqueeze(0))
`;
  return `
counter = tallybox.Counter(max_objects=${state.maxObjects}${isUntrained ? "" : `, segments=${knots[0].length - 1}`})
${bent}
trace = counter.explain(attention, boxes)
print(f"count {trace.count.item():.6f}")
print(f"confidence {trace.confidence.item():.6f}")
`;
}

function presence(state, weights) {
  const isUntrained = state.weights === "untrained";
  const learned = isUntrained
    ? ""
    : `
weights = {
${Object.entries(weights).map(([name, value]) => `    "${name}": ${JSON.stringify(value)},`).join("\n")}
}
with torch.no_grad():
    for name, value in weights.items():
        getattr(presence, name).copy_(torch.tensor(value).unsqueeze(0))
`;
  return `
presence = tallybox.PresenceCounter(max_objects=${state.maxObjects}${isUntrained ? "" : `, segments=${weights.calibration.length}`})
${learned}
trace = presence.explain(attention, boxes)
print(f"count {trace.count.item():.6f}")
print("presence", [round(p, 6) for p in trace.presence[0].tolist()])
print("distribution", [round(p, 6) for p in trace.distribution[0].tolist()])
`;
}

// Written with a point, so that Python takes them for floating point numbers.
function written(value) {
  return Number.isInteger(value) ? `${value}.0` : String(value);
}

function vector(values) {
  return `[${values.map(written).join(", ")}]`;
}

function matrix(rows) {
  return rows.length ? `[\n${rows.map((row) => `    ${vector(row)},`).join("\n")}\n]` : "[]";
}
