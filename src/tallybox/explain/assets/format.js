// Numbers: within bounds, and as text.

export function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

export function short(value, digits = 2) {
  if (value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits) return value > 0 ? `<${10 ** -digits}` : `>-${10 ** -digits}`;
  const fixed = value.toFixed(digits);
  return fixed.includes(".") ? fixed.replace(/\.?0+$/, "") : fixed;
}

export function percent(share) {
  return share >= 0.995 && share < 1 ? ">99 %" : `${Math.round(100 * share)} %`;
}

export function range(low, high) {
  return low === high ? String(low) : `${low}–${high}`;
}
