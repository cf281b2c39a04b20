// Taking results along: a picture of the photo as it is in view, and text for the clipboard.
import { element } from "./element.js";
import { inkOn } from "./colours.js";
import { numberPlaces } from "./number_places.js";

export async function copyText(text, status) {
  try {
    await navigator.clipboard.writeText(text);
    status.textContent = "Copied.";
  } catch {
    status.textContent = "This browser does not allow copying here.";
  }
}

// Drawn like the pictures of `tallybox count --save`.
export async function savePicture({ name, href, size: [width, height] }, marks, caption) {
  const image = new Image();
  image.src = href;
  await image.decode();
  const unit = Math.max(width, height) / 640;
  const canvas = element("canvas", { width, height: height + Math.round(40 * unit) });
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, width, height);
  const counted = marks.filter(({ kind }) => kind === "clear" || kind === "doubtful");
  for (const { corners: [x1, y1, x2, y2], kind, colour } of [...marks].reverse()) {
    const thick = counted.length && (kind === "clear" || kind === "doubtful") ? 3 * unit : unit;
    context.setLineDash(kind === "doubtful" ? [9 * unit, 5 * unit] : []);
    for (const [style, line] of [["#0008", thick + 2 * unit], [colour ?? "#cfd4d9", thick]]) {
      Object.assign(context, { strokeStyle: style, lineWidth: line });
      context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    }
  }
  context.setLineDash([]);
  Object.assign(context, { textAlign: "center", textBaseline: "middle", strokeStyle: "#111", lineWidth: unit, font: `bold ${12 * unit}px sans-serif` });
  numberPlaces(counted.map(({ corners }) => corners), 11 * unit, { width, height }).forEach((place, index) => {
    if (!place) return;
    const ground = counted[index].kind === "clear" ? counted[index].colour : "#ffffff";
    context.beginPath();
    context.arc(...place, 11 * unit, 0, 2 * Math.PI);
    context.fillStyle = ground;
    context.fill();
    context.stroke();
    context.fillStyle = inkOn(ground);
    context.fillText(counted[index].number, ...place);
  });
  Object.assign(context, { textAlign: "left", fillStyle: "#000", font: `${15 * unit}px sans-serif` });
  context.fillText(caption, 12 * unit, height + 20 * unit);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
  const link = element("a", { href: URL.createObjectURL(blob), download: `${name.replace(/\.\w+$/, "")}_counted.jpg` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
