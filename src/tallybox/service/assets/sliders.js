// A slider for the score of every box.
import { element } from "./element.js";
import { boxMarks, kindName } from "./marks.js";
import { roundedScore } from "./state.js";

export function createSliders(pointing, { onScore, onRemove }) {
  const list = element("div", { class: "sliders" });
  const rows = [];

  function newRow(box) {
    const slider = element("input", {
      type: "range", min: 0, max: 1, step: 0.01, id: `score-${box}`,
      input: () => onScore(box, roundedScore(Number(slider.value))),
      focus: () => pointing.at(box),
      blur: () => pointing.at(),
    });
    const output = element("output", { for: slider.id });
    const swatch = element("span", { class: "swatch" });
    const result = element("span", { class: "result-kind quiet" });
    const row = element(
      "div",
      { class: "slider", ...pointing.attributes(box) },
      element("label", { for: slider.id }, swatch, `Box ${box + 1}`),
      slider,
      output,
      result,
      element("button", { type: "button", class: "plain", "aria-label": `Remove box ${box + 1}`, click: () => onRemove(box) }, "×"),
    );
    return { row, slider, output, swatch, result };
  }

  function update(explained, colour) {
    while (rows.length > explained.boxes.length) rows.pop().row.remove();
    while (rows.length < explained.boxes.length) {
      rows.push(newRow(rows.length));
      list.append(rows.at(-1).row);
    }
    boxMarks(explained, colour).forEach(({ kind, colour: stroke }, box) => {
      const { slider, output, swatch, result } = rows[box];
      if (Number(slider.value) !== explained.scores[box]) slider.value = explained.scores[box];
      output.textContent = explained.scores[box].toFixed(2);
      swatch.className = `swatch ${kind}`;
      swatch.style.borderColor = stroke ?? "";
      swatch.style.background = kind === "clear" ? stroke : "";
      result.textContent = kindName(kind, explained.duplicate_of[box]);
    });
  }

  pointing.mark(list);
  return { element: list, update };
}
