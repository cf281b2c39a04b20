// Asking the server. Numbers are computed there, by the library; here they are only drawn.

const TOKEN = "tallybox-token";

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.error), { status: response.status });
  return content;
}

// Ask for what is wanted last: one question at a time, at most one for each frame, and none that nobody waits for.
export function createAsker({ onAnswer, onProblem, onIdle }) {
  let wanted = null;
  let isAsking = false;

  async function next() {
    while (wanted) {
      const asked = wanted;
      wanted = null;
      await new Promise(requestAnimationFrame);
      if (wanted) continue; // already stale
      try {
        const body = JSON.stringify(asked.request);
        const answer = await ask("/v1/explain", { method: "POST", body, headers: { "content-type": "application/json" } });
        if (!asked.isStale()) onAnswer(answer);
      } catch (problem) {
        onProblem(problem);
      }
    }
    isAsking = false;
    onIdle();
  }

  return (request, isStale) => {
    wanted = { request, isStale };
    if (isAsking) return;
    isAsking = true;
    next();
  };
}
