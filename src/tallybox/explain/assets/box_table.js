// Every box in a table: score, presence, and what became of it.
import { element } from "./element.js";
import { boxRoles, isPaper, scoreName } from "./objects.js";
import { short } from "./format.js";

export function boxTable(counting, pointing) {
  const { labels, scores, presence, merged_into } = counting;
  const names = ["box", ...(labels ? ["looks like"] : []), scoreName(counting), isPaper(counting) ? "share" : "presence", "what became of it"];
  const rows = boxRoles(counting).map(({ box, kind, colour }) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour ?? "transparent";
    const outcome = { counted: "counted", merged: `merged into box ${merged_into[box] + 1}`, leftover: "too faint, not counted" }[kind];
    return element(
      "tr",
      pointing.attributes(box),
      element("td", {}, swatch, String(box + 1)),
      ...(labels ? [element("td", {}, labels[box])] : []),
      element("td", {}, short(scores[box], 3)),
      element("td", { class: "presence" }, short(presence[box], 3)),
      element("td", { class: "quiet" }, outcome),
    );
  });
  const headings = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const body = element("tbody", {}, ...rows);
  pointing.mark(body);
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All boxes" }, element("table", {}, element("thead", {}, headings), body));
}
