// Making elements. Text only ever becomes a text node, so nothing in a name is taken for markup.

export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

export function card(title, ...children) {
  return element("section", { class: "card" }, element("h2", {}, title), ...children);
}

export function setAttributes(target, attributes) {
  for (const [name, value] of Object.entries(attributes)) target.setAttribute(name, value);
}

function fill(created, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") created.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) created.setAttribute(name, value);
  }
  created.append(...children);
  return created;
}
