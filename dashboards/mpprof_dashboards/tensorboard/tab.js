/* The tab "Mixed precision" in TensorBoard: a chooser of runs and the first screen of one. */
function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

async function asked(path) {
  const answer = await fetch(new URL(path, import.meta.url));
  if (!answer.ok) throw new Error(`TensorBoard answers ${answer.status}`);
  return answer.json();
}

const LOOK = `body { margin: 0; }
.mp-tab-bar { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: center; padding: 12px 24px 0; font: 14px sans-serif; }
.mp-tab-bar select { max-width: 60vw; padding: 4px 8px; font: inherit; }`;

export async function render() {
  document.head.appendChild(element("style", LOOK));
  const style = document.head.appendChild(element("style"));
  const bar = document.body.appendChild(element("div", undefined, "mp-tab-bar"));
  const page = document.body.appendChild(element("main", undefined, "mp-page"));
  document.body.className = "mp-export";
  const label = bar.appendChild(element("label", "Run "));
  const chooser = label.appendChild(element("select"));
  chooser.id = "mpprof-run";
  const rest = bar.appendChild(element("span", "All pages: ", "mp-note"));
  rest.appendChild(element("code", "mpprof serve LOGDIR"));
  import(new URL("why.js", import.meta.url)); /* the switches of remedies, and what copies code */
  let known;
  try {
    known = await asked("runs.json");
  } catch (error) {
    page.replaceChildren(element("p", error.message));
    return;
  }
  known.runs.forEach((run) => {
    const option = chooser.appendChild(element("option", run.name));
    option.value = run.id;
  });
  async function show() {
    const run = chooser.value;
    page.setAttribute("aria-busy", "true");
    page.replaceChildren(element("p", `Reading ${chooser.selectedOptions[0]?.textContent || ""}`));
    try {
      const got = await asked(`card.json?run=${encodeURIComponent(run)}`);
      if (chooser.value !== run) return; /* another one was chosen meanwhile */
      if (got.problem) page.replaceChildren(element("p", got.problem, "mp-card"));
      else {
        style.textContent = got.style;
        page.innerHTML = got.body; /* written by mpprof, with every name in it escaped */
      }
    } catch (error) {
      page.replaceChildren(element("p", error.message));
    }
    page.removeAttribute("aria-busy");
  }
  chooser.addEventListener("change", show);
  if (known.chosen) chooser.value = known.chosen;
  if (known.runs.length) await show();
  else page.replaceChildren(element("p", "No run that mpprof can read lies in TensorBoard's log directory."));
}
