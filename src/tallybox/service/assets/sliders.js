// A slider for the weight of every box.
import { element } from "./element.js";
import { boxRoles } from "./objects.js";
import { short } from "./format.js";
import { roundedWeight } from "./state.js";

export function createSliders(pointing, { onWeight, onRemove }) {
  const list = element("div", { class: "sliders" });
  const rows = [];

  function newRow(box) {
    const slider = element("input", {
      type: "range", min: 0, max: 1, step: 0.01, id: `weight-${box}`,
      input: () => onWeight(box, roundedWeight(Number(slider.value))),
      focus: () => pointing.at(box),
      blur: () => pointing.at(),
    });
    const output = element("output", { for: slider.id });
    const swatch = element("span", { class: "swatch" });
    const became = element("span", { class: "became quiet" });
    const row = element(
      "div",
      { class: "slider", ...pointing.attributes(box) },
      element("label", { for: slider.id }, swatch, `Box ${box + 1}`),
      slider,
      output,
      became,
      element("button", { type: "button", class: "plain", "aria-label": `Remove box ${box + 1}`, click: () => onRemove(box) }, "×"),
    );
    return { row, slider, output, swatch, became };
  }

  function update(counting) {
    while (rows.length > counting.boxes.length) rows.pop().row.remove();
    while (rows.length < counting.boxes.length) {
      rows.push(newRow(rows.length));
      list.append(rows.at(-1).row);
    }
    boxRoles(counting).forEach(({ box, kind, colour }) => {
      const { slider, output, swatch, became } = rows[box];
      if (Number(slider.value) !== counting.scores[box]) slider.value = counting.scores[box];
      output.textContent = short(counting.scores[box]);
      swatch.style.background = colour ?? "transparent";
      became.textContent = { counted: "counted", merged: `in box ${counting.merged_into[box] + 1}`, leftover: "not counted" }[kind];
    });
  }

  pointing.mark(list);
  return { element: list, update };
}
