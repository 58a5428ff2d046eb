// A page that a watch serves: it is loaded again when something else is said, and says so when nobody answers.
const LOOK_MS = 5000;
const facts = document.querySelector("header .facts");
const since = el("b", { role: "status" });
facts.append(" ", since);

async function look() {
  try {
    const signal = AbortSignal.timeout(2 * LOOK_MS);
    const answer = await fetch(location.pathname, { method: "HEAD", cache: "no-store", signal });
    const version = answer.headers.get("ETag");
    if (!answer.ok || !version) throw new Error(answer.statusText);
    if (version !== `"${document.documentElement.dataset.live}"`) location.reload();
    since.textContent = "";
  } catch {
    since.textContent = since.textContent || `The watch has not answered since ${new Date().toISOString().slice(11, 19)} UTC: what follows may be over.`;
  }
  setTimeout(look, LOOK_MS);
}
setTimeout(look, LOOK_MS);
