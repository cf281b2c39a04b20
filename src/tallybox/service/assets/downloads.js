// Taking a scene along: as a file of JSON, a picture, or a program.
import { element } from "./element.js";
import { boxRoles } from "./objects.js";
import { short } from "./format.js";

export function download(name, content, kind) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export async function scenePicture(state, counting, href) {
  const scale = Math.max(1, 1200 / state.width);
  const footer = 56;
  const canvas = element("canvas", { width: state.width * scale, height: state.height * scale + footer });
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  if (href) {
    const photo = new Image();
    photo.src = href;
    await photo.decode();
    context.drawImage(photo, 0, 0, state.width * scale, state.height * scale);
  }
  const styles = { counted: [4, []], merged: [2, [8, 5]], leftover: [1.5, []] };
  for (const { box, kind, colour } of boxRoles(counting)) {
    const [x1, y1, x2, y2] = counting.boxes[box].map((corner) => corner * scale);
    const [width, dashes] = styles[kind];
    context.lineWidth = width;
    context.setLineDash(dashes);
    context.strokeStyle = colour ?? "#9aa1a8";
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    context.fillStyle = context.strokeStyle;
    context.font = "600 20px system-ui, sans-serif";
    context.fillText(`${box + 1} · ${short(counting.scores[box])}`, x1 + 6, y1 + 24);
  }
  context.fillStyle = "#20242a";
  context.font = "600 24px system-ui, sans-serif";
  const { sum, nms } = counting.baselines;
  context.fillText(`count ${short(counting.count)}    adding up ${short(sum)}    NMS ${nms}`, 16, canvas.height - 18);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
