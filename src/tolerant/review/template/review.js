// What the person does: buttons, keys, dialogs.
const keysOn = byId("keys-on");

function act(row, label) {
  decide([[row, label]]);
  paintCard(cardOf(row));
  paintProgress();
  const decision = decisionOf(row);
  const words = { accept: "is now", keep: "stays", change: "is now" };
  const name = DATA.ids[row];
  say(decision === "drop" ? `${name} is dropped.` : decision ? `${name} ${words[decision]} ${className(label)}.` : `${name} is open again.`);
}

function press(row, action) {
  if (action === "change") return openChooser(row);
  if (action === "expand") return expand(cardOf(row));
  const label = { accept: DATA.suggested[row], keep: DATA.given[row], drop: DROP }[action];
  return act(row, decided[row] === label ? NONE : label); // a second press takes it back
}

function undoLast() {
  const rows = undo();
  if (!rows.length) return;
  for (const row of rows) if (cardOf(row)) paintCard(cardOf(row));
  if (rows.length === 1) goTo(rows[0]);
  paintProgress();
  say(rows.length === 1 ? `Undone for ${DATA.ids[rows[0]]}.` : `Undone for ${grouped(rows.length)} rows.`);
}

// Choosing another label

const MOST_CHOICES = 200; // enough to scroll; thousands of classes are found by typing
let choosingFor = NONE;

function openChooser(row) {
  choosingFor = row;
  byId("choose-heading").textContent = `Choose a label for ${DATA.ids[row]}`;
  byId("choose-preview").replaceChildren(content(row));
  byId("choose-search").value = "";
  fillChoices();
  byId("choose-dialog").showModal();
  byId("choose-search").focus();
}

function fillChoices() {
  const wanted = byId("choose-search").value.trim().toLowerCase();
  const matches = [];
  DATA.classes.forEach((name, label) => {
    if (name.toLowerCase().includes(wanted)) matches.push(label);
  });
  byId("choices").replaceChildren(...matches.slice(0, MOST_CHOICES).map((label) => {
    const note = label === DATA.given[choosingFor] ? "given" : label === DATA.suggested[choosingFor] ? "suggested" : "";
    const choice = make("button", { type: "button", "data-label": String(label), "aria-pressed": String(label === decided[choosingFor]) },
      className(label), ...(note ? [make("small", { text: note })] : []));
    return make("li", {}, choice);
  }));
  byId("choose-hint").textContent = matches.length === 0 ? "No label matches."
    : matches.length > MOST_CHOICES ? `${grouped(matches.length)} labels match; type more of the name.` : "";
}

function choose(label) {
  byId("choose-dialog").close();
  current = choosingFor;
  act(choosingFor, label);
  nextUndecided();
}

// Keys

const KEYS = {
  a: () => { press(current, "accept"); nextUndecided(); },
  k: () => { press(current, "keep"); nextUndecided(); },
  c: () => press(current, "change"),
  d: () => { press(current, "drop"); nextUndecided(); },
  u: undoLast,
  n: () => step(1),
  p: () => step(-1),
  ArrowRight: () => step(1),
  ArrowLeft: () => step(-1),
  "?": () => byId("help-dialog").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]") || event.target.closest("input, select, textarea")) return;
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "z") {
    event.preventDefault();
    undoLast();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || !keysOn.checked) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!Object.hasOwn(KEYS, key) || (current === NONE && key !== "?" && key !== "u")) return;
  event.preventDefault();
  KEYS[key]();
});

// Wiring

list.addEventListener("click", (event) => {
  const card = event.target.closest(".card");
  if (!card) return;
  current = Number(card.dataset.row);
  markCurrent();
  const control = event.target.closest("[data-action]");
  if (control) press(current, control.dataset.action);
});
list.addEventListener("focusin", (event) => {
  const card = event.target.closest(".card");
  if (card && Number(card.dataset.row) !== current) {
    current = Number(card.dataset.row);
    markCurrent();
  }
});

for (const control of Object.values(controls)) {
  control.addEventListener("change", () => {
    applyFilters();
    say(`${grouped(shown.length)} suspects shown.`);
  });
}
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
for (const place of [byId("pairs"), ...document.querySelectorAll(".heat")]) {
  place.addEventListener("click", (event) => {
    const pair = event.target.closest("[data-given]");
    if (!pair) return;
    showPair(pair.dataset.given, pair.dataset.suggested);
    if (place !== byId("pairs")) byId("review").scrollIntoView();
  });
}
search.addEventListener("input", () => {
  applyFilters();
  say(`${grouped(shown.length)} suspects shown.`);
});
byId("clear-filters").addEventListener("click", () => {
  search.value = "";
  controls.given.value = "";
  controls.suggested.value = "";
  controls.status.value = "all";
  applyFilters();
  say("");
});

function turnPage(by) {
  current = shown[(page + by) * PAGE_SIZE];
  showPage(page + by);
  goTo(current);
}
byId("page-previous").addEventListener("click", () => turnPage(-1));
byId("page-next").addEventListener("click", () => turnPage(1));
byId("accept-page").addEventListener("click", () => {
  const rows = openRows();
  decide(rows.map((row) => [row, DATA.suggested[row]]));
  for (const row of rows) paintCard(cardOf(row));
  paintProgress();
  say(`Accepted ${grouped(rows.length)} suggestions; undo takes all of them back.`);
});

byId("undo").addEventListener("click", undoLast);
byId("help").addEventListener("click", () => byId("help-dialog").showModal());
byId("export-csv").addEventListener("click", () => {
  download("corrections.csv", "text/csv", asCsv());
  say("Saved as corrections.csv.");
});
byId("export-json").addEventListener("click", () => {
  download("corrections.json", "application/json", asJson());
  say("Saved as corrections.json.");
});
byId("choose-search").addEventListener("input", fillChoices);
byId("choose-search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const first = byId("choices").querySelector("button");
  if (first) choose(Number(first.dataset.label));
});
byId("choices").addEventListener("click", (event) => {
  const choice = event.target.closest("[data-label]");
  if (choice) choose(Number(choice.dataset.label));
});
keysOn.addEventListener("change", () => remember(KEYS_KEY, keysOn.checked ? "on" : "off"));
window.addEventListener("storage", (event) => {
  if (event.key !== STORE_KEY) return; // the same page in another tab
  load(event.newValue);
  undoStack.length = 0;
  showPage(page);
  say("");
});
window.addEventListener("beforeunload", (event) => {
  if (!storageWorks && !exported) event.preventDefault();
});

document.documentElement.classList.add("js");
byId("filters").open = !window.matchMedia("(max-width: 40rem)").matches;
keysOn.checked = recall(KEYS_KEY) !== "off";
load(recall(STORE_KEY));
fillClassFilter(controls.given, DATA.given);
fillClassFilter(controls.suggested, DATA.suggested);
fillPairs();
applyFilters();
say(decidedCount ? "Welcome back." : "");
