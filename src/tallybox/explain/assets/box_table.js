// Every box in a table: number, score, presence and kind.
import { element } from "./element.js";
import { short } from "./format.js";
import { isCounter } from "./marks.js";

export function boxTable(explained, marks, pointing) {
  const { scores, presence } = explained;
  const names = ["box", "score", isCounter(explained) ? "share" : "presence", "result"];
  const rows = marks.map(({ kind, colour, detail }, box) => {
    const swatch = element("span", { class: `swatch ${kind}` });
    swatch.style.borderColor = colour ?? "";
    swatch.style.background = kind === "clear" ? colour : "";
    return element(
      "tr",
      pointing.attributes(box),
      element("td", {}, swatch, String(box + 1)),
      element("td", {}, short(scores[box], 3)),
      element("td", { class: "presence" }, short(presence[box], 3)),
      element("td", { class: "quiet" }, detail.split(" · ").at(-1)),
    );
  });
  const body = element("tbody", {}, ...rows);
  pointing.mark(body);
  const headings = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All boxes" }, element("table", {}, element("thead", {}, headings), body));
}
