// A photo of the user's, and the boxes that the service's detector finds in it.
import { fetchJson } from "./client.js";
import { MAX_BOXES, roundedCorner, roundedWeight } from "./state.js";

const CANVAS = 640; // the longer side of the canvas that a photo is laid on

export async function readPhoto(file, problem) {
  const href = await dataUrl(file);
  const photo = new Image();
  photo.src = href;
  await photo.decode();
  const scale = CANVAS / Math.max(photo.naturalWidth, photo.naturalHeight);
  const [width, height] = [photo.naturalWidth, photo.naturalHeight].map((side) => Math.max(Math.round(side * scale), 1));
  let found = { boxes: [], attention: [] };
  try {
    const { images } = await fetchJson("/v1/count/photo?detections=true", { method: "POST", body: file, headers: { "content-type": file.type } });
    found = bestCategory(images[0].detections, width / images[0].detections.size[0]);
    problem("");
  } catch (failed) {
    problem(`No boxes were found: ${failed.message}. Draw them yourself.`);
  }
  return [href, width, height, found];
}

// One question is about one category: the one whose best box scores highest.
function bestCategory({ boxes, scores, category_ids }, scale) {
  const best = category_ids[scores.indexOf(Math.max(...scores))];
  const chosen = scores
    .map((score, box) => ({ score, box }))
    .filter(({ box }) => category_ids[box] === best)
    .sort((one, other) => other.score - one.score)
    .slice(0, MAX_BOXES);
  return {
    boxes: chosen.map(({ box }) => boxes[box].map((corner) => roundedCorner(corner * scale))),
    attention: chosen.map(({ score }) => roundedWeight(score)),
  };
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("the photo cannot be read"));
    reader.readAsDataURL(file);
  });
}
