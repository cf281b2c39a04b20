// A tour of the page in three steps, shown on the first visit. Each step stands in the part that it is about.
import { element } from "./element.js";

const SEEN = "tallybox-tour";

export function createTour(steps) {
  const text = element("p", {});
  const number = element("span", { class: "quiet small" });
  const next = element("button", { type: "button", class: "next", click: () => show(current + 1) });
  const skip = element("button", { type: "button", class: "skip", click: end }, "Skip the tour");
  const bubble = element("aside", { class: "tour", role: "dialog", "aria-label": "Tour", keydown: (event) => event.key === "Escape" && end() }, text, element("div", { class: "toolbar" }, number, element("span", { class: "gap" }), skip, next));
  let current = 0;

  function show(step, isFirstVisit = false) {
    if (step === steps.length) return end();
    current = step;
    text.textContent = steps[step].text;
    number.textContent = `${step + 1} of ${steps.length}`;
    const isLast = step === steps.length - 1;
    next.textContent = isLast ? "Done" : "Next";
    skip.hidden = isLast;
    const part = steps[step].part();
    part.prepend(bubble);
    if (isFirstVisit) return;
    part.scrollIntoView({ block: "start" });
    next.focus({ preventScroll: true });
  }

  function end() {
    bubble.remove();
    remember();
  }

  return { start: () => show(0), startOnFirstVisit: () => wasSeen() || show(0, true) };
}

// Browsers that keep nothing show the tour again.
function remember() {
  try {
    localStorage.setItem(SEEN, "yes");
  } catch {}
}

function wasSeen() {
  try {
    return localStorage.getItem(SEEN) !== null;
  } catch {
    return false;
  }
}
