// A distribution of the count as bars, with axes; the bars of the 90 % interval are darker, that of the answer darkest.
import { element } from "./element.js";
import { percent, short } from "./format.js";

const TAIL = 0.002; // bars behind the last that is more probable than this are left out
const MAX_LABELLED = 9; // bars that have room for their values
const ENDS = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1]; // of the axis

export function createBars() {
  const bars = element("div", { class: "bars", role: "img" });
  const axis = element("p", { class: "axis-name" });
  const scale = element("div", { class: "bars-scale", "aria-hidden": "true" });

  // ``asShares``: values are probabilities, not features.
  function update(distribution, { low, high, answer, what = "count", asShares = true } = {}) {
    const top = Math.min(answer ?? distribution.indexOf(Math.max(...distribution)), distribution.length - 1);
    const last = distribution.findLastIndex((share) => share > TAIL);
    const barCount = Math.min(Math.max(last + 2, top + 3, 5), distribution.length);
    const largest = Math.max(...distribution);
    const end = ENDS.find((value) => value >= largest) ?? largest;
    const written = (share) => (asShares ? percent(share) : short(share));
    const shown = distribution.slice(0, barCount);
    scale.replaceChildren(...[end, end / 2, 0].map((share) => element("span", {}, written(share))));
    bars.replaceChildren(
      ...shown.map((share, count) => {
        const isLabelled = barCount <= MAX_LABELLED && share >= 0.05 * largest;
        const bar = element("i");
        bar.style.height = `${(110 * share) / end}px`;
        return element(
          "div",
          { class: `bar${count === top ? " top" : ""}${count >= low && count <= high ? " inside" : ""}`, title: `${count}: ${written(share)}` },
          element("div", { class: "column" }, element("span", { class: "value" }, isLabelled ? written(share) : ""), bar),
          element("span", { class: "tick" }, count === distribution.length - 1 && asShares ? `${count}+` : String(count)),
        );
      }),
    );
    bars.setAttribute("aria-label", shown.map((share, count) => `${count}: ${written(share)}`).join(", "));
    axis.textContent = what;
  }

  return { element: element("figure", { class: "bars-figure" }, scale, bars, axis), update };
}
