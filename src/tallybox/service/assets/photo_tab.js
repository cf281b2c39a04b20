// The first tab: count a sample photo, or the visitor's own.
import { card, element } from "./element.js";
import { fetchBlob, fetchJson } from "./client.js";
import { createPointing } from "./pointing.js";
import { createScene, createViewSwitch, sceneLegend } from "./scene.js";
import { createCompare } from "./compare.js";
import { intervalBar, scaleEnd } from "./interval.js";
import { boxMarks, kindCounts } from "./marks.js";
import { categoryColour } from "./colours.js";
import { percent, range } from "./format.js";

export function createPhotoTab(samples, { onMove }) {
  const pointing = createPointing();
  const scene = createScene({ width: 4, height: 3, href: null }, pointing);
  const viewSwitch = createViewSwitch(scene);
  const compare = createCompare();
  const [rows, perhaps] = [element("div", { class: "rows" }), element("p", { class: "quiet small" })];
  const status = element("p", { class: "quiet", role: "status" });
  const problem = element("p", { class: "problem", role: "alert" });
  const clear = element("p", { class: "quiet small" });
  const move = element("button", { type: "button", class: "primary", id: "move", click: () => onMove(photo, chosen) }, "Move these boxes");
  const thumbnails = samples.map((sample) => {
    const label = spoken(sample.name);
    const button = element("button", { type: "button", class: "sample", "data-photo": sample.name, title: label, click: () => showSample(sample) }, element("img", { src: `/photos/${sample.name}`, alt: label }));
    return { sample, button };
  });
  const field = element("input", { type: "file", accept: "image/*,.heic,.heif", id: "photo", change: () => (take(field.files), (field.value = "")) });
  const dropZone = element("label", { class: "drop" }, field, element("b", {}, "Choose a photo"), " or drop one here · sent only to this server, never stored");
  let photo = null; // the photo that is shown: { href, size, categories, detections }
  let chosen = null; // a category of it
  let latest = 0; // number of the photo that was chosen last: answers about earlier ones come too late

  const take = (files) => files?.[0] && show(files[0], {}, null);
  for (const kind of ["dragover", "dragleave", "drop"]) {
    window.addEventListener(kind, (event) => {
      event.preventDefault();
      dropZone.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files);
    });
  }
  window.addEventListener("paste", (event) => take(event.clipboardData?.files));

  async function showSample(sample) {
    await show(fetchBlob(`/photos/${sample.name}`), sample.truth, sample);
  }

  // The file may still be on its way. The last photo stays until the new one is counted.
  async function show(file, truth, sample) {
    const current = (latest += 1);
    panel.setAttribute("aria-busy", "true");
    status.textContent = "Detecting …";
    problem.textContent = "";
    try {
      const body = await file;
      const sent = { method: "POST", body, headers: { "content-type": body.type.startsWith("image/") ? body.type : "image/unknown" } };
      const { images } = await fetchJson("/v1/count/photo?boxes=true&detections=true", sent);
      if (current !== latest) return;
      if (photo) URL.revokeObjectURL(photo.href);
      for (const thumbnail of thumbnails) thumbnail.button.setAttribute("aria-pressed", thumbnail.sample === sample);
      draw(images[0], URL.createObjectURL(body), truth);
    } catch (failed) {
      if (current === latest) problem.textContent = `Not counted: ${failed.message}`;
    }
    if (current !== latest) return;
    status.textContent = "";
    panel.setAttribute("aria-busy", "false");
  }

  function draw({ size, counts, boxes, detections }, href, truth) {
    const entries = Object.entries(counts).sort(([, a], [, b]) => b.count - a.count || b.expected - a.expected);
    const categories = entries.filter(([, { count }]) => count > 0).map(([name, count], number) => ({ name, ...count, ...boxes[name], truth: truth[name] ?? null, colour: categoryColour(number) }));
    photo = { href, size, categories, detections };
    let first = 0; // number of a category's first box among all that are drawn
    const marks = categories.flatMap((category) => {
      category.marks = boxMarks({ component: "presence", ...category }, category.colour, category.name);
      category.indices = category.marks.map((_, box) => first + box);
      first += category.marks.length;
      return category.marks;
    });
    scene.resize({ width: size[0], height: size[1], href });
    pointing.at();
    scene.update(marks);
    const kinds = kindCounts(marks);
    viewSwitch.update({ boxes: marks.length, counted: kinds.clear + kinds.doubtful });
    viewSwitch.choose("counted");
    clear.textContent = marks.length ? `Counted boxes: ${kinds.clear} clear, ${kinds.doubtful} doubtful.` : "";
    const max = scaleEnd(...categories.flatMap(({ high, truth: known }) => [high, known]));
    rows.replaceChildren(...categories.map((category) => row(category, max)));
    if (!categories.length) rows.append(element("p", {}, "Nothing that the detector knows."));
    const others = entries.filter(([, { count }]) => count === 0).map(([name]) => `${name} (${percent(boxes[name].probability)})`);
    perhaps.textContent = others.length ? `Perhaps also: ${others.join(", ")}.` : "";
    methods.hidden = move.hidden = !categories.length;
    if (categories.length) choose(categories[0]);
  }

  function row(category, max) {
    const { name, label, count, low, high, truth, colour, indices, marks } = category;
    const [swatch, counted] = [element("span", { class: "swatch clear" }), indices.filter((_, box) => ["clear", "doubtful"].includes(marks[box].kind))];
    swatch.style.background = colour;
    const light = () => pointing.at(...counted);
    return element(
      "button",
      { type: "button", class: "row", "data-category": name, click: () => choose(category), pointerenter: light, pointerleave: () => pointing.at(), focus: light, blur: () => pointing.at() },
      element("span", { class: "how-many" }, String(count)),
      element("span", { class: "what" }, swatch, label.replace(/^\S+ /, "")),
      element("span", { class: "quiet small" }, `90 %: ${range(low, high)}`),
      intervalBar({ count, low, high, truth, max, colour, label: `${label}, 90 %: ${range(low, high)}${truth === null ? "" : `, true count ${truth}`}` }),
    );
  }

  function choose(category) {
    chosen = category;
    for (const one of rows.children) one.setAttribute("aria-pressed", one.dataset.category === category.name);
    methods.querySelector("h2").textContent = `Why not simply … (${category.label.replace(/^\S+ /, "")})`;
    compare.update({ ...category, name: "tallybox" });
  }

  const methods = card("Why not simply …", compare.element);
  const panel = element(
    "section",
    { class: "tab", id: "photos", "aria-busy": "true" },
    element("div", { class: "strip" }, ...thumbnails.map(({ button }) => button), dropZone),
    problem,
    element(
      "div",
      { class: "columns" },
      element("div", {}, element("section", { class: "card" }, viewSwitch.element, status, scene.element, sceneLegend(), clear)),
      element(
        "div",
        {},
        element("section", { class: "card" }, rows, perhaps, element("p", { class: "quiet small" }, "Best estimate and 90 % interval. ", element("span", { class: "truth-key" }), " true count, for sample photos.")),
        methods,
        element("div", { class: "toolbar" }, move),
      ),
    ),
  );
  return { element: panel, showFirst: () => (samples.length ? showSample(samples[0]) : (problem.textContent = "This service does not count photos.")) };
}

function spoken(name) {
  const words = name.replace(/\.\w+$/, "").replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}
