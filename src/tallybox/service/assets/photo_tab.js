// The first tab: count a sample photo, or the visitor's own. Everything in view is about one category, the chosen row.
import { card, element } from "./element.js";
import { fetchBlob, fetchJson } from "./client.js";
import { createPointing } from "./pointing.js";
import { createScene, createViewSwitch, sceneLegend } from "./scene.js";
import { createCompare } from "./compare.js";
import { copyText, savePicture } from "./sharing.js";
import { intervalBar, scaleAxis, scaleEnd } from "./interval.js";
import { boxMarks, kindCounts, otherMarks } from "./marks.js";
import { categoryColour } from "./colours.js";
import { percent, range } from "./format.js";

export function createPhotoTab(samples, { onMove }) {
  const pointing = createPointing();
  const scene = createScene({ width: 4, height: 3, href: null }, pointing);
  const viewSwitch = createViewSwitch(scene);
  const compare = createCompare();
  const [rows, perhaps, legend] = [element("div", { class: "rows" }), element("p", { class: "quiet small" }), element("div")];
  const status = element("span", { class: "quiet", role: "status" });
  const loading = element("p", { class: "quiet" }, "Detecting objects in the first photo …"); // until there is one
  const problem = element("p", { class: "problem", role: "alert" });
  const truthKey = element("p", { class: "quiet small" }, element("span", { class: "truth-key" }), "true count, known for sample photos");
  const shared = element("p", { class: "quiet small", role: "status" });
  const thumbnails = samples.map((sample) => {
    const label = spoken(sample.name);
    const button = element("button", { type: "button", class: "sample", "data-photo": sample.name, title: label, click: () => showSample(sample) }, element("img", { src: `/photos/${sample.name}`, alt: label }));
    return { sample, button };
  });
  const dropZone = element("label", { class: "drop" }, fileField({ id: "photo" }), element("b", {}, "Choose a photo"), element("span", { class: "with-mouse" }, "or drop or paste one here"), element("span", { class: "promise" }, "Sent only to this server, never stored"));
  const camera = element("label", { class: "drop camera" }, fileField({ capture: "environment" }), element("b", {}, "Take a photo"));
  let photo = null; // the photo that is shown: { name, href, size, categories, detections }
  let chosen = null; // a category of it
  let latest = 0; // number of the photo that was chosen last: answers about earlier ones come too late

  function fileField(attributes) {
    const field = element("input", { type: "file", accept: "image/*,.heic,.heif", ...attributes, change: () => (take(field.files), (field.value = "")) });
    return field;
  }

  function take(files) {
    if (files?.[0]) show(files[0], files[0].name || "photo.jpg", null, null);
  }

  for (const kind of ["dragover", "dragleave", "drop"]) {
    window.addEventListener(kind, (event) => {
      event.preventDefault();
      dropZone.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files);
    });
  }
  window.addEventListener("paste", (event) => take(event.clipboardData?.files));

  async function showSample(sample) {
    await show(fetchBlob(`/photos/${sample.name}`), sample.name, sample.truth, sample);
  }

  // The file may still be on its way. The last photo stays until the new one is counted.
  async function show(file, name, truth, sample) {
    const current = (latest += 1);
    panel.setAttribute("aria-busy", "true");
    status.textContent = "Detecting …";
    problem.textContent = shared.textContent = "";
    try {
      const body = await file;
      const sent = { method: "POST", body, headers: { "content-type": body.type.startsWith("image/") ? body.type : "image/unknown" } };
      const { images } = await fetchJson("/v1/count/photo?boxes=true&detections=true", sent);
      if (current !== latest) return;
      if (photo) URL.revokeObjectURL(photo.href);
      for (const thumbnail of thumbnails) thumbnail.button.setAttribute("aria-pressed", thumbnail.sample === sample);
      draw(images[0], name, URL.createObjectURL(body), truth);
    } catch (failed) {
      if (current === latest) problem.textContent = `Not counted: ${failed.message.replace(/^.*Cannot read [^:]*: /, "")}`;
    }
    if (current !== latest) return;
    loading.hidden = true;
    status.textContent = "";
    panel.setAttribute("aria-busy", "false");
  }

  function draw({ size, counts, boxes, detections }, name, href, truth) {
    const entries = Object.entries(counts).sort(([, a], [, b]) => b.count - a.count || b.expected - a.expected);
    const present = entries.filter(([, { count }]) => count > 0);
    const categories = present.map(([category, count], number) => withMarks({ name: category, ...count, ...boxes[category], truth: truth && (truth[category] ?? 0), colour: categoryColour(number) }, detections));
    photo = { name, href, size, categories, detections, isSample: truth !== null };
    scene.resize({ width: size[0], height: size[1], href });
    const max = scaleEnd(...categories.flatMap(({ high, truth: known }) => [high, known]));
    rows.replaceChildren(...categories.map((category) => row(category, max)), ...(categories.length ? [scaleAxis(max)] : [element("p", {}, "Nothing that the detector knows.")]));
    const others = entries.filter(([, { count }]) => count === 0).map(([other]) => `${other} (${percent(boxes[other].probability)})`);
    const limited = categories.filter(({ saturated }) => saturated).map(({ label }) => withoutNumber(label));
    const notes = [...(limited.length ? [`There may be more ${limited.join(" and ")} (limit reached).`] : []), ...(others.length ? [`Perhaps also: ${others.join(", ")}.`] : [])];
    perhaps.textContent = notes.join(" ");
    truthKey.hidden = !categories.some(({ truth: known }) => known !== null);
    methods.hidden = buttons.hidden = !categories.length;
    columns.hidden = false;
    choose(categories[0] ?? null);
    viewSwitch.choose(categories.length ? "counted" : "photo");
  }

  function row(category, max) {
    const { name, label, count, low, high, truth, colour, calibrated = true } = category;
    const swatch = element("span", { class: "swatch clear" });
    swatch.style.background = colour;
    const light = () => (showMarks(category), pointing.at(...category.counted));
    const unlight = () => (pointing.at(), showMarks(chosen));
    const interval = `90 %: ${range(low, high)}`;
    const one = element(
      "button",
      { type: "button", class: "row", "data-category": name, click: () => choose(category), pointerenter: light, pointerleave: unlight, focus: light, blur: unlight },
      element("span", { class: "how-many" }, String(count)),
      element("span", { class: "what" }, swatch, withoutNumber(label)),
      element("span", { class: "quiet small" }, interval, ...(calibrated ? [] : [", uncalibrated"])),
      intervalBar({ count, low, high, truth, max, colour, label: `${label}, ${interval}${truth === null ? "" : `, true count ${truth}`}` }),
    );
    one.style.setProperty("--row", colour);
    return one;
  }

  function choose(category) {
    chosen = category;
    for (const one of rows.querySelectorAll(".row")) one.setAttribute("aria-pressed", one.dataset.category === category?.name);
    showMarks(category);
    if (!category) return;
    whichCategory.textContent = withoutNumber(category.label);
    compare.update({ ...category, name: "tallybox" });
  }

  function showMarks(category) {
    const marks = category?.marks ?? [];
    scene.update(marks);
    viewSwitch.update({ boxes: marks.length, counted: category?.counted.length ?? 0 });
    legend.replaceChildren(...(category ? [sceneLegend(["clear", "doubtful", "duplicate", "other"], { counts: kindCounts(marks), colour: category.colour })] : []));
  }

  function python() {
    const name = JSON.stringify(photo.name);
    const path = photo.isSample ? `next(path for path in tallybox.sample_photos() if path.name == ${name})` : name;
    return `import tallybox\n\nphoto = ${path}\nfound = tallybox.PhotoCounter().count(photo)[${JSON.stringify(chosen.name)}]\nprint(found.count, found.low, found.high)\n`;
  }

  async function save() {
    try {
      await savePicture(photo, scene.shown(), `${chosen.label} (${range(chosen.low, chosen.high)})`);
    } catch {
      shared.textContent = "This browser cannot draw the photo.";
    }
  }

  function showFirst() {
    if (samples.length) return showSample(samples[0]);
    problem.textContent = "This service does not count photos.";
    loading.hidden = true;
  }

  const action = (text, click, attributes = {}) => element("button", { type: "button", click, ...attributes }, text);
  const whichCategory = element("span", { class: "quiet small" });
  const methods = card("Why not simply …", compare.element);
  methods.querySelector("h2").append(whichCategory);
  const buttons = element(
    "div",
    { class: "toolbar" },
    action("Move these boxes", () => onMove(photo, chosen), { class: "primary", id: "move" }),
    action("Save picture", save, { id: "save" }),
    action("Copy Python", () => copyText(python(), shared), { id: "python" }),
    shared,
  );
  const columns = element(
    "div",
    { class: "columns", hidden: "" },
    element("div", {}, element("section", { class: "card" }, element("div", { class: "toolbar" }, viewSwitch.element, status), scene.element, legend)),
    element("div", {}, element("section", { class: "card" }, rows, perhaps, truthKey), methods, buttons),
  );
  const panel = element("section", { class: "tab", id: "photos", "aria-busy": "true" }, element("div", { class: "strip" }, ...thumbnails.map(({ button }) => button), dropZone, camera), problem, loading, columns);
  return { element: panel, showFirst };
}

// The estimator explains the best boxes of a category; the detector's others follow them.
function withMarks(category, detections) {
  const marks = boxMarks({ component: "presence", ...category }, category.colour, category.name);
  const known = new Set(category.boxes.map(String));
  const others = detections.boxes.flatMap((corners, box) => (detections.category_ids[box] === category.category_id && !known.has(String(corners)) ? [box] : []));
  const pick = (values) => others.map((box) => values[box]);
  marks.push(...otherMarks(pick(detections.boxes), marks.length, category.name));
  const counted = marks.flatMap(({ kind }, box) => (kind === "clear" || kind === "doubtful" ? [box] : []));
  return { ...category, boxes: [...category.boxes, ...pick(detections.boxes)], scores: [...category.scores, ...pick(detections.scores)], marks, counted };
}

function withoutNumber(label) {
  return label.replace(/^\S+ /, "");
}

function spoken(name) {
  const words = name.replace(/\.\w+$/, "").replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}
