// How the count came about, in words.
import { element } from "./element.js";

export function createSteps() {
  const list = element("ol", { class: "steps" });
  return {
    element: list,
    update(steps) {
      list.replaceChildren(...steps.map(({ title, text }) => element("li", {}, element("strong", {}, title), element("span", {}, text))));
    },
  };
}
