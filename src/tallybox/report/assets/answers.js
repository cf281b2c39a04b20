// The answers of a VQA model with their probabilities.
import { element } from "./element.js";
import { percent } from "./format.js";

export function createAnswers() {
  const body = element("tbody");
  return {
    element: element("table", { class: "answers" }, body),
    update(answers) {
      body.replaceChildren(
        ...answers.map(([answer, probability]) => {
          const bar = element("i");
          bar.style.width = `${100 * probability}%`;
          return element("tr", {}, element("th", { scope: "row" }, answer), element("td", {}, percent(probability)), element("td", { class: "share" }, bar));
        }),
      );
    },
  };
}
