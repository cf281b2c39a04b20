// Requests to the service. The library computes every number there; the page only draws.

const TOKEN = "tallybox-token";

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export async function fetchJson(path, options) {
  return (await ask(path, options)).json();
}

export async function fetchBlob(path, options) {
  return (await ask(path, options)).blob();
}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (!response.ok) throw Object.assign(new Error((await response.json()).error), { status: response.status });
  return response;
}

// Sends only the latest request: one at a time, at most one for each frame, and none that a newer one has replaced.
export function createExplainer({ onAnswer, onProblem, onIdle }) {
  let latest = null;
  let isBusy = false;

  async function next() {
    while (latest) {
      const { request, isStale } = latest;
      latest = null;
      await new Promise(requestAnimationFrame);
      if (latest) continue; // already stale
      try {
        const body = JSON.stringify(request);
        const answer = await fetchJson("/v1/explain", { method: "POST", body, headers: { "content-type": "application/json" } });
        if (!isStale()) onAnswer(answer);
      } catch (problem) {
        onProblem(problem);
      }
    }
    isBusy = false;
    onIdle();
  }

  return (request, isStale) => {
    latest = { request, isStale };
    if (isBusy) return;
    isBusy = true;
    next();
  };
}
