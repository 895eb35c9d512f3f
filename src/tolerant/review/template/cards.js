// One card for each suspect: what it is, what it was called, what the model would call it, four buttons.
const VERDICTS = { accept: "✓ Now", keep: "= Kept", change: "✎ Now", drop: "✕ Dropped" };
const FIRST_COLUMNS = 7; // of a table row; the others on request

function content(row) {
  if (DATA.pictures) {
    return make("div", { class: "picture" }, make("img", { src: DATA.pictures[row], alt: `Row ${DATA.ids[row]}` }));
  }
  if (DATA.texts) {
    const scrolls = DATA.texts[row].length > 300 ? { tabindex: "0", role: "group", "aria-label": "Text" } : {};
    return make("div", { class: "words", ...scrolls, text: DATA.texts[row] });
  }
  const scrolls = DATA.features.length > 7 || DATA.values[row].some((value) => value.length > 100);
  const values = make("dl", { class: "values", tabindex: scrolls ? "0" : null });
  showColumns(values, row, FIRST_COLUMNS);
  return values;
}

// Columns that made the model doubt come first: they are what a person wants to see.
function showColumns(values, row, most) {
  const named = DATA.reasons && DATA.reasons[row] ? DATA.reasons[row].map((reason) => DATA.features.indexOf(reason[0])) : [];
  const first = [...new Set(named.filter((column) => column >= 0))];
  const order = [...first, ...DATA.features.map((_, column) => column).filter((column) => !first.includes(column))].slice(0, most);
  values.replaceChildren(...order.flatMap((column) => [make("dt", { text: DATA.features[column] }), make("dd", { text: DATA.values[row][column] })]));
}

function expander() {
  if (!DATA.values || DATA.features.length <= FIRST_COLUMNS) return [];
  return [make("button", { type: "button", class: "expand", "data-action": "expand", "aria-expanded": "false", text: `All ${DATA.features.length} columns` })];
}

function expand(card) {
  const control = card.querySelector(".expand");
  const open = control.getAttribute("aria-expanded") === "false";
  control.setAttribute("aria-expanded", String(open));
  control.textContent = open ? "Fewer columns" : `All ${DATA.features.length} columns`;
  card.classList.toggle("expanded", open);
  showColumns(card.querySelector(".values"), Number(card.dataset.row), open ? DATA.features.length : FIRST_COLUMNS);
}

// What speaks for the suggestion: words, or columns with their values.
function because(row) {
  const found = DATA.reasons && DATA.reasons[row] ? DATA.reasons[row] : [];
  if (!found.length) return [];
  const parts = found.map(([name, value]) => make("b", { text: value === "" ? name : `${name}: ${value}` }));
  return [make("p", { class: "because" }, make("span", { text: "because" }), ...parts)];
}

function prunedText(row) {
  if (DATA.prunedAt[row] === 0) return "left out";
  if (DATA.prunedAt[row] !== null) return `pruned, epoch ${DATA.prunedAt[row]}`;
  return DATA.kept && !DATA.kept[row] ? "pruned" : "";
}

// The nearest believed rows of one class, or the twin with another label.
function examples(row, title, places) {
  const found = places.filter((place) => place >= 0);
  if (!found.length) return [];
  const items = found.map((place) => {
    const label = `${DATA.exampleIds[place]}: ${className(DATA.exampleLabels[place])}`;
    return DATA.examplePictures
      ? make("img", { src: DATA.examplePictures[place], alt: label, title: label })
      : make("q", { text: DATA.exampleTexts[place], title: label });
  });
  return [make("div", { class: "examples" }, make("span", { text: title }), ...items)];
}

function evidence(row) {
  const near = DATA.near?.[row];
  if (!near) return [];
  const given = className(DATA.given[row]);
  const suggested = className(DATA.suggested[row]);
  return [...examples(row, `nearest ${given}`, near.slice(0, 3)), ...examples(row, `nearest ${suggested}`, near.slice(3, 6)),
    ...examples(row, near[6] >= 0 ? `the same, called ${className(DATA.exampleLabels[near[6]])}` : "", near.slice(6))];
}

function belief(kind, title, label, p) {
  const fill = make("span");
  fill.style.width = `${100 * p}%`;
  return [
    make("dt", { text: title }),
    make("dd", { class: "name", text: className(label), title: className(label) }),
    make("dd", { class: "share", text: percent(p) }),
    make("dd", { class: `track ${kind}`, "aria-hidden": "true" }, fill),
  ];
}

function button(action, text, spoken, key) {
  return make("button", { type: "button", "data-action": action, "aria-pressed": "false" },
    text, make("span", { class: "hidden", text: ` ${spoken}` }), make("kbd", { text: key, "aria-hidden": "true" }));
}

function rowId(id) {
  const cut = id.lastIndexOf("/") + 1;
  return make("span", { class: "id", title: id },
    make("span", { class: "folders", text: id.slice(0, cut) }), make("span", { text: id.slice(cut) }));
}

function makeCard(row, position, total) {
  const given = className(DATA.given[row]);
  const suggested = className(DATA.suggested[row]);
  const sampled = DATA.sampleOf !== null; // without the model's opinion, which would sway the person
  const beliefs = make("dl", { class: "beliefs" });
  if (sampled) beliefs.append(make("dt", { text: "Given" }), make("dd", { class: "name", text: given, title: given }));
  else {
    beliefs.append(...belief("given", "Given", DATA.given[row], DATA.p[row]),
      ...belief("suggested", "Suggested", DATA.suggested[row], DATA.confidence[row]));
  }
  const card = make("article", {
    class: "card", tabindex: "-1", "data-row": String(row),
    "aria-label": `${sampled ? "Row" : "Suspect"} ${position} of ${total}, row ${DATA.ids[row]}: given ${given}${sampled ? "" : `, suggested ${suggested}`}`,
  },
  content(row), ...expander(),
  make("div", { class: "facts-of-row" },
    make("p", { class: "origin" }, rowId(DATA.ids[row]),
      make("span", { class: "verdict", hidden: "" }), make("span", { class: "pruned", text: prunedText(row) })),
    beliefs, ...because(row), ...evidence(row), ...(DATA.notes && DATA.notes[row] ? [make("p", { class: "note", text: DATA.notes[row] })] : [])),
  make("div", { class: "decide", role: "group", "aria-label": "Decide" },
    ...(sampled ? [] : [button("accept", "Accept", suggested, "A")]), button("keep", sampled ? "Right" : "Keep", given, "K"), button("change", "Other…", "label", "C"),
    button("drop", "Drop", "the row, none of the classes", "D")));
  paintCard(card);
  return make("li", {}, card);
}

function paintCard(card) {
  const row = Number(card.dataset.row);
  const decision = decisionOf(row);
  card.classList.toggle("decided", decision !== null);
  const verdict = card.querySelector(".verdict");
  verdict.hidden = decision === null;
  verdict.textContent = decision === null ? "" : decision === "drop" ? VERDICTS.drop : `${VERDICTS[decision]} ${className(decided[row])}`;
  for (const control of card.querySelectorAll("[aria-pressed]")) {
    control.setAttribute("aria-pressed", String(control.dataset.action === decision));
  }
}
