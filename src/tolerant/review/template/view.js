// Which suspects are shown: a filtered, sorted list of rows, cut into pages so that 5,000 suspects
// cost the browser no more than one page of cards.
const PAGE_SIZE = DATA.pictures ? 48 : 24;
const controls = { given: byId("filter-given"), suggested: byId("filter-suggested"), status: byId("filter-status"), sort: byId("sort") };
const search = byId("search");
const list = byId("cards");
let shown = [];
let page = 0;
let current = NONE; // the row that keys act on

const STATUS = {
  all: () => true,
  open: (row) => decided[row] === NONE,
  done: (row) => decided[row] !== NONE,
  pruned: (row) => !DATA.kept[row],
  kept: (row) => DATA.kept[row],
  twins: (row) => DATA.notes[row].startsWith("same"),
  lonely: (row) => DATA.notes[row].startsWith("maybe"),
};
const ORDER = {
  doubt: (a, b) => a - b,
  sure: (a, b) => DATA.confidence[b] - DATA.confidence[a] || a - b,
  given: (a, b) => DATA.given[a] - DATA.given[b] || a - b,
  suggested: (a, b) => DATA.suggested[a] - DATA.suggested[b] || a - b,
  order: (a, b) => DATA.index[a] - DATA.index[b],
};

function fillClassFilter(select, labels) {
  const counts = new Map();
  for (const label of labels) counts.set(label, (counts.get(label) || 0) + 1);
  select.append(make("option", { value: "", text: "Any" }));
  for (const label of [...counts.keys()].sort((a, b) => a - b)) {
    select.append(make("option", { value: String(label), text: `${className(label)} (${grouped(counts.get(label))})` }));
  }
}

function fillPairs() {
  const counts = new Map();
  for (let row = 0; row < COUNT && DATA.sampleOf === null; row += 1) {
    const pair = `${DATA.given[row]} ${DATA.suggested[row]}`;
    counts.set(pair, (counts.get(pair) || 0) + 1);
  }
  const top = [...counts].filter(([, count]) => count > 1).sort((a, b) => b[1] - a[1]).slice(0, 8);
  for (const [pair, count] of top) {
    const [given, suggested] = pair.split(" ");
    byId("pairs").append(make("button", { type: "button", "data-given": given, "data-suggested": suggested, "aria-pressed": "false", title: `${className(given)} → ${className(suggested)}` },
      make("bdi", { text: className(given) }), " ", make("span", { "aria-hidden": "true", text: "→" }), make("span", { class: "hidden", text: "to" }),
      " ", make("bdi", { text: className(suggested) }), make("small", { text: `${grouped(count)} rows` })));
  }
  byId("pairs").hidden = top.length === 0;
}

// All that a person reads of a row, in small letters.
const haystacks = [];
function haystack(row) {
  haystacks[row] ??= [DATA.ids[row], className(DATA.given[row]), className(DATA.suggested[row]),
    ...(DATA.texts ? [DATA.texts[row]] : DATA.values ? DATA.values[row] : [])].join("\n").toLowerCase();
  return haystacks[row];
}

// The list is made when a filter changes, and stays: a row just decided does not vanish.
function applyFilters() {
  const { given, suggested, status, sort } = controls;
  const wanted = search.value.trim().toLowerCase();
  shown = [];
  for (let row = 0; row < COUNT; row += 1) {
    if (wanted && !haystack(row).includes(wanted)) continue;
    if (given.value !== "" && DATA.given[row] !== Number(given.value)) continue;
    if (suggested.value !== "" && DATA.suggested[row] !== Number(suggested.value)) continue;
    if (STATUS[status.value](row)) shown.push(row);
  }
  shown.sort(ORDER[sort.value]);
  for (const chip of byId("pairs").querySelectorAll("button")) {
    chip.setAttribute("aria-pressed", String(chip.dataset.given === given.value && chip.dataset.suggested === suggested.value));
  }
  current = shown.length ? shown[0] : NONE;
  showPage(0);
}

function showPair(given, suggested) {
  const same = controls.given.value === given && controls.suggested.value === suggested;
  controls.given.value = same ? "" : given;
  controls.suggested.value = same ? "" : suggested;
  applyFilters();
  say(`${grouped(shown.length)} suspects shown.`);
}

function showPage(number) {
  page = number;
  const first = page * PAGE_SIZE;
  const rows = shown.slice(first, first + PAGE_SIZE);
  list.replaceChildren(...rows.map((row, at) => makeCard(row, first + at + 1, shown.length)));
  byId("empty").hidden = shown.length > 0 || COUNT === 0;
  byId("pager").hidden = shown.length === 0;
  byId("page-text").textContent = `${grouped(first + 1)} to ${grouped(first + rows.length)} of ${grouped(shown.length)}`;
  byId("page-previous").disabled = page === 0;
  byId("page-next").disabled = first + rows.length >= shown.length;
  markCurrent();
  paintProgress();
}

const cardOf = (row) => list.querySelector(`[data-row="${row}"]`);

function markCurrent() {
  for (const card of list.querySelectorAll(".current")) card.classList.remove("current");
  const card = cardOf(current);
  if (card) card.classList.add("current");
}

// Show the row's page if needed, and put the focus on its card.
function goTo(row) {
  const at = shown.indexOf(row);
  if (at < 0) return;
  current = row;
  const target = Math.floor(at / PAGE_SIZE);
  if (target === page) markCurrent();
  else showPage(target);
  const card = cardOf(row);
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const at = Math.min(Math.max(shown.indexOf(current) + by, 0), shown.length - 1);
  if (shown.length) goTo(shown[at]);
}

function nextUndecided() {
  const at = shown.indexOf(current);
  const next = shown.slice(at + 1).find((row) => decided[row] === NONE);
  goTo(next ?? current);
}

function paintProgress() {
  byId("meter").setAttribute("aria-valuenow", String(decidedCount));
  byId("meter-fill").style.width = `${COUNT ? (100 * decidedCount) / COUNT : 0}%`;
  byId("undo").disabled = undoStack.length === 0;
  paintSample();
  byId("export-csv").disabled = decidedCount === 0;
  byId("export-json").disabled = decidedCount === 0;
  byId("accept-page").disabled = openRows().length === 0;
  byId("storage-notice").hidden = storageWorks;
}

const openRows = () => [...list.querySelectorAll(".card:not(.decided)")].map((card) => Number(card.dataset.row));

function say(text) {
  const done = decidedCount === COUNT ? `All ${grouped(COUNT)} decided; export the labels.` : `${grouped(decidedCount)} of ${grouped(COUNT)} decided.`;
  byId("status").textContent = text ? `${done} ${text}` : done;
}
