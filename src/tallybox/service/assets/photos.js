// Photos: the samples that ship with the library, or one of the user's, counted by the service's estimator.
import { element } from "./element.js";
import { fetchBlob, fetchJson } from "./client.js";
import { MAX_BOXES, roundedCorner, roundedWeight } from "./state.js";

const CANVAS = 640; // the longer side of the canvas that a photo is laid on

export function createPhotos(names, { onCategory }) {
  const picture = element("img", { class: "photo", alt: "" });
  const counts = element("tbody");
  const perhaps = element("p", { class: "quiet small" });
  const problem = element("p", { class: "problem", role: "alert" });
  const samples = names.map((name) => {
    const label = spoken(name);
    const button = element("button", { type: "button", class: "sample", "data-photo": name, title: label, click: () => showSample(name) }, element("img", { src: `/photos/${name}`, alt: label }));
    return { name, button };
  });
  const field = element("input", { type: "file", accept: "image/*", id: "photo", change: () => (show(field.files[0], field.files[0].name), (field.value = "")) });
  let address = ""; // of the outlined picture
  let latest = 0; // number of the photo that was chosen last: answers about earlier ones come too late

  async function showSample(name) {
    await show(fetchBlob(`/photos/${name}`), spoken(name), name);
  }

  // The file may still be on its way: from the click on, the card is busy.
  async function show(chosen, title, sample = null) {
    const current = (latest += 1);
    for (const { name, button } of samples) button.setAttribute("aria-pressed", name === sample);
    card.setAttribute("aria-busy", "true");
    counts.replaceChildren();
    perhaps.textContent = "";
    problem.textContent = "";
    try {
      const file = await chosen;
      const href = await dataUrl(file);
      picture.src = href;
      picture.alt = title;
      await picture.decode().catch(() => Promise.reject(new Error("it is no photo that this browser can show")));
      picture.style.aspectRatio = `${picture.naturalWidth} / ${picture.naturalHeight}`; // leaves out the counts below
      const sent = { method: "POST", body: file, headers: { "content-type": file.type } };
      const [{ images }, outlined] = await Promise.all([fetchJson("/v1/count/photo?detections=true", sent), fetchBlob("/v1/outline", sent)]);
      if (current !== latest) return;
      URL.revokeObjectURL(address);
      address = picture.src = URL.createObjectURL(outlined);
      list(images[0], href);
      picture.alt = `${title}, with ${counts.childElementCount ? "what was counted outlined" : "nothing to count"}`;
    } catch (failed) {
      if (current === latest) problem.textContent = `This file was not counted: ${failed.message}.`;
    }
    if (current === latest) card.setAttribute("aria-busy", "false");
  }

  function list({ counts: predictions, detections, category_ids }, href) {
    const entries = Object.entries(predictions).sort(([, a], [, b]) => b.count - a.count);
    const present = entries.filter(([, { count }]) => count > 0);
    counts.replaceChildren(
      ...present.map(([name, count]) =>
        element(
          "tr",
          { "data-category": name },
          element("td", { class: "how-many" }, written(count)),
          element("th", { scope: "row" }, name),
          element("td", { class: "quiet" }, range(count)),
          element("td", {}, element("button", { type: "button", "aria-label": `How was ${name} counted?`, click: () => onCategory(name, count, href, boxesOf(detections, category_ids[name])) }, "How?")),
        ),
      ),
    );
    if (!present.length) counts.append(element("tr", {}, element("td", {}, "Nothing that the detector knows.")));
    const doubtful = entries.filter(([, { count }]) => count === 0).map(([name, { high }]) => (high ? `${name} (up to ${high})` : name));
    perhaps.textContent = doubtful.length ? `Probably none, but not surely: ${doubtful.join(", ")}.` : "";
  }

  const card = element(
    "section",
    { class: "card photos", id: "photos" },
    element("h2", {}, "Count a photo"),
    element("div", { class: "toolbar" }, ...samples.map(({ button }) => button), element("label", { class: "file" }, "Your photo …", field)),
    element(
      "div",
      { class: "counted" },
      element("figure", {}, picture),
      element(
        "div",
        {},
        element("table", { class: "counts" }, counts),
        perhaps,
        problem,
        element("p", { class: "quiet small" }, "The number is the best guess. Nine of ten such ranges hold the true count. A photo of yours goes to this service alone, and is not stored."),
      ),
    ),
  );
  return { element: card, showFirst: () => showSample(names[0]) };
}

function written({ count, at_least }) {
  return at_least ? `about ${count}` : String(count);
}

function range({ low, high }) {
  return low === high ? "no other number is likely" : `${low} to ${high}`;
}

function spoken(name) {
  const words = name.replace(/\.\w+$/, "").replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

// The boxes of one category, the best first, on a canvas of the explorer.
function boxesOf({ boxes, scores, category_ids, size }, category) {
  const scale = CANVAS / Math.max(...size);
  const [width, height] = size.map((side) => Math.max(Math.round(side * scale), 1));
  const chosen = scores
    .map((score, box) => ({ score, box }))
    .filter(({ box }) => category_ids[box] === category)
    .sort((a, b) => b.score - a.score)
    .slice(0, MAX_BOXES);
  return {
    width,
    height,
    boxes: chosen.map(({ box }) => boxes[box].map((corner) => roundedCorner(corner * scale))),
    attention: chosen.map(({ score }) => roundedWeight(score)),
  };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
}
