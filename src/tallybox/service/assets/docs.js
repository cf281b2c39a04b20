// The description of the service, read from /openapi.json: works without any other site.
import { element } from "./element.js";

const EXAMPLES = {
  "/v1/count": `curl ORIGIN/v1/count -H 'content-type: application/json' -d '
  {"images": [{"image": 1, "boxes": [[10, 10, 50, 90], [12, 11, 52, 88]], "scores": [0.9, 0.6], "category_ids": [18, 18]}]}'`,
  "/v1/count/photo": `curl 'ORIGIN/v1/count/photo?category=person' -H 'content-type: image/jpeg' --data-binary @photo.jpg
curl ORIGIN/v1/count/photo -F photo=@one.jpg -F photo=@two.jpg -F category=person`,
  "/v1/outline": `curl ORIGIN/v1/outline -F photo=@photo.jpg -o outlined.jpg`,
  "/v1/explain": `curl ORIGIN/v1/explain -H 'content-type: application/json' -d '
  {"component": "counter", "boxes": [[10, 10, 50, 90], [12, 11, 52, 88]], "attention": [0.9, 0.6]}'`,
};

function kindOf(schema = {}) {
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return [...new Set(options.map(kindOf))].join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kindOf(schema.items)}`;
  if (schema.additionalProperties && typeof schema.additionalProperties === "object") return `object of ${kindOf(schema.additionalProperties)}`;
  return schema.format === "binary" ? "bytes" : (schema.type ?? "anything");
}

function bounds(schema) {
  const named = { minimum: "at least", maximum: "at most", minItems: "items, at least", maxItems: "items, at most", maxLength: "letters, at most" };
  return Object.entries(named).flatMap(([key, words]) => (schema[key] === undefined ? [] : [`${words} ${schema[key]}`])).join("; ");
}

function fields(schema, schemas, seen = new Set()) {
  const name = schema?.$ref?.split("/").at(-1);
  const model = name ? schemas[name] : schema;
  if (!model?.properties || seen.has(name)) return [];
  seen.add(name);
  const required = new Set(model.required ?? []);
  const rows = Object.entries(model.properties).map(([key, value]) =>
    element(
      "tr",
      {},
      element("td", {}, element("code", {}, key), required.has(key) ? "" : " (optional)"),
      element("td", {}, element("div", {}, kindOf(value)), element("div", { class: "quiet" }, [value.description, bounds(value)].filter(Boolean).join(" "))),
    ),
  );
  const inner = Object.values(model.properties).flatMap((value) => [value, ...(value.anyOf ?? [])]).flatMap((value) => [value, value.items, value.additionalProperties]);
  return [
    element("h3", {}, name ?? "object"),
    element("table", {}, element("tbody", {}, ...rows)),
    ...inner.flatMap((value) => (value && value.$ref ? fields(value, schemas, seen) : [])),
  ];
}

function route(path, method, { description, parameters = [], requestBody, responses }, schemas) {
  const body = requestBody ? Object.entries(requestBody.content) : [];
  const [[answerType, { schema: answer }]] = Object.entries(responses["200"].content);
  const section = (title, ...children) => (children.flat().length ? [element("details", {}, element("summary", {}, title), ...children.flat())] : []);
  return element(
    "section",
    { class: "card route" },
    element("h2", {}, element("span", { class: "method" }, method.toUpperCase()), element("code", {}, path)),
    element("p", {}, description ?? ""),
    ...(EXAMPLES[path] ? [element("pre", {}, EXAMPLES[path].replaceAll("ORIGIN", location.origin))] : []),
    ...section(
      "Parameters",
      parameters.map(({ name, schema, description: text }) => element("p", {}, element("code", {}, name), ` ${kindOf(schema)}`, element("span", { class: "quiet" }, ` ${text ?? ""} ${bounds(schema)}`))),
    ),
    ...section(`Body: ${body.map(([kind]) => kind).join(" or ")}`, body.flatMap(([, { schema }]) => fields(schema, schemas))),
    ...section(`Answer: ${answer ? kindOf(answer) : answerType}`, answer ? fields(answer.items ?? answer, schemas) : element("p", {}, "A picture.")),
    ...section(
      "Problems",
      element("table", {}, element("tbody", {}, ...Object.entries(responses).filter(([status]) => status !== "200").map(([status, { description: text }]) => element("tr", {}, element("td", {}, status), element("td", {}, text))))),
    ),
  );
}

async function showDocs() {
  const description = await (await fetch("/openapi.json")).json();
  const routes = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, details]) => route(path, method, details, description.components.schemas)),
  );
  document.getElementById("docs").append(
    element(
      "header",
      { class: "head" },
      element("div", {}, element("h1", {}, "The HTTP service"), element("p", { class: "quiet small" }, `tallybox ${description.info.version}. Every problem is answered as {"error": "one line"}. `, element("a", { href: "/openapi.json" }, "openapi.json"), " · ", element("a", { href: "/" }, "explorer"))),
    ),
    ...routes,
  );
}

showDocs();
