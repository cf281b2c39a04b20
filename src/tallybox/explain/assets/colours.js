// Colours of categories and of matrices, distinguishable with all common kinds of colour vision, in light and in dark.
import { clamp } from "./format.js";

// Okabe and Ito's palette, in the order of outlined photos.
const CATEGORIES = ["#e69f00", "#56b4e9", "#cc79a7", "#009e73", "#d55e00", "#0072b2", "#f0e442"];

// From 0 to 1, and from -1 over 0 to 1.
const RAMPS = {
  light: { rising: ["#f1f3f5", "#a9cbe6", "#3f8dc6", "#0b4a82"], both: ["#a5480d", "#f3f3f1", "#0b4a82"] },
  dark: { rising: ["#252b32", "#27557c", "#4c9ad6", "#c4e4ff"], both: ["#f0a36b", "#2a3037", "#8cc8ff"] },
};

const darkMode = window.matchMedia("(prefers-color-scheme: dark)");

export function categoryColour(number) {
  return CATEGORIES[number % CATEGORIES.length];
}

// Black or white, whichever is readable on a colour.
export function inkOn(colour) {
  const [red, green, blue] = colour.startsWith("#") ? [1, 3, 5].map((offset) => parseInt(colour.slice(offset, offset + 2), 16)) : colour.match(/\d+/g);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 100 ? "#000" : "#fff";
}

export function valueColour(value, signed = false) {
  const ramps = RAMPS[darkMode.matches ? "dark" : "light"];
  const ramp = signed ? ramps.both : ramps.rising;
  const share = clamp(signed ? (value + 1) / 2 : value, 0, 1) * (ramp.length - 1);
  const lower = Math.min(Math.floor(share), ramp.length - 2);
  return mixed(ramp[lower], ramp[lower + 1], share - lower);
}

export function onColourChange(listener) {
  darkMode.addEventListener("change", listener);
}

function mixed(from, to, share) {
  const parts = [1, 3, 5].map((offset) => {
    const [low, high] = [from, to].map((colour) => parseInt(colour.slice(offset, offset + 2), 16));
    return Math.round(low + share * (high - low));
  });
  return `rgb(${parts.join(" ")})`;
}
