// Every box in a table: score, presence, and what became of it.
import { element } from "./element.js";
import { objectColour } from "./colours.js";
import { boxRoles, isPaper, scoreName } from "./objects.js";
import { short } from "./format.js";

const OUTCOMES = { counted: "counted", leftover: "too faint, not counted" };

export function createBoxTable(pointing) {
  const body = element("tbody");
  const headings = element("tr");
  const table = element(
    "table",
    {},
    element("thead", {}, headings),
    body,
  );

  function update(counting) {
    const roles = boxRoles(counting);
    const labelled = counting.labels !== undefined;
    const names = ["box", ...(labelled ? ["looks like"] : []), scoreName(counting), isPaper(counting) ? "share" : "presence", "what became of it"];
    headings.replaceChildren(...names.map((name) => element("th", { scope: "col" }, name)));
    body.replaceChildren(
      ...counting.boxes.map((_, box) => {
        const swatch = element("span", { class: "swatch" });
        swatch.style.background = roles[box].object === null ? "transparent" : objectColour(roles[box].object);
        const into = counting.merged_into[box];
        const outcome = roles[box].kind === "merged" ? `merged into box ${into + 1}` : OUTCOMES[roles[box].kind];
        return element(
          "tr",
          { "data-box": box, pointerenter: () => pointing.at(box), pointerleave: () => pointing.at() },
          element("td", {}, swatch, String(box + 1)),
          ...(labelled ? [element("td", {}, counting.labels[box])] : []),
          element("td", {}, short(counting.scores[box], 3)),
          element("td", { class: "presence" }, short(counting.presence[box], 3)),
          element("td", { class: "quiet" }, outcome),
        );
      }),
    );
  }

  pointing.listen((boxes) => {
    for (const row of body.children) row.classList.toggle("pointed", boxes.includes(Number(row.dataset.box)));
  });
  return { element: element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All boxes" }, table), update };
}
