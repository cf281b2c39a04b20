// The distribution of the count as bars.
import { element } from "./element.js";
import { percent, short } from "./format.js";

const TAIL = 0.002; // bars behind the last that is more probable than this are left out

export function createBars() {
  const bars = element("div", { class: "bars", role: "img" });

  // The bar of the answer stands out; without one, the highest.
  function update(distribution, { low, high, answer, asShares = true } = {}) {
    const top = Math.min(answer ?? distribution.indexOf(Math.max(...distribution)), distribution.length - 1);
    const last = distribution.findLastIndex((share) => share > TAIL);
    const barCount = Math.min(Math.max(last + 2, top + 3, 5), distribution.length);
    const largest = Math.max(...distribution, 1e-9);
    const written = (share) => (asShares ? percent(share) : short(share));
    bars.replaceChildren(
      ...distribution.slice(0, barCount).map((share, count) => {
        const isLast = count === distribution.length - 1;
        const column = element(
          "div",
          { class: `bar${count === top ? " top" : ""}${count >= low && count <= high ? " inside" : ""}`, title: `${count}: ${written(share)}` },
          element("span", { class: "value" }, share >= 0.05 * largest && share >= 0.005 ? written(share).replace(" %", barCount > 9 ? "" : " %") : ""),
        );
        const bar = element("i");
        bar.style.height = `${(72 * share) / largest}%`;
        column.append(bar, element("span", { class: "tick" }, isLast && asShares ? `${count}+` : String(count)));
        return column;
      }),
    );
    bars.setAttribute("aria-label", distribution.slice(0, barCount).map((share, count) => `${count}: ${written(share)}`).join(", "));
  }

  return { element: bars, update };
}
