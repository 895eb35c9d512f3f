// Decisions: the chosen label of each suspect, or NONE. Whether it was accepted, kept or changed
// follows from the label, so the two cannot disagree. DROP: none of the classes, the row is to go.
const NONE = -1;
const DROP = -2;
const STORE_KEY = `tolerant-review:${DATA.run}`;
const KEYS_KEY = "tolerant-review-single-keys";
const decided = new Int32Array(COUNT).fill(NONE);
const undoStack = []; // each step: [[row, label before], ...]
let decidedCount = 0;
let exported = true; // the last export has every decision as it stands
let storageWorks = true;

function decisionOf(row) {
  if (decided[row] === NONE) return null;
  if (decided[row] === DROP) return "drop";
  if (decided[row] === DATA.given[row]) return "keep"; // first: in a sample nothing else is suggested
  return decided[row] === DATA.suggested[row] ? "accept" : "change";
}

function setLabel(row, label) {
  decidedCount += (label !== NONE) - (decided[row] !== NONE);
  decided[row] = label;
}

// One step for undo, however many rows it decides.
function decide(changes) {
  undoStack.push(changes.map(([row]) => [row, decided[row]]));
  for (const [row, label] of changes) setLabel(row, label);
  save();
}

function undo() {
  const step = undoStack.pop();
  if (!step) return [];
  for (const [row, label] of step) setLabel(row, label);
  save();
  return step.map(([row]) => row);
}

function save() {
  exported = false;
  const labels = [];
  for (let row = 0; row < COUNT; row += 1) if (decided[row] !== NONE) labels.push([row, decided[row]]);
  remember(STORE_KEY, JSON.stringify({ version: 1, labels }));
}

function load(text) {
  decided.fill(NONE);
  decidedCount = 0;
  let labels = null;
  try {
    labels = JSON.parse(text || "{}").labels;
  } catch {
    // another program wrote under this key: start afresh
  }
  for (const entry of Array.isArray(labels) ? labels : []) {
    const [row, label] = Array.isArray(entry) ? entry : [];
    if (Number.isInteger(row) && row >= 0 && row < COUNT && (label === DROP || isLabel(label))) setLabel(row, label);
  }
}

const isLabel = (label) => Number.isInteger(label) && label >= 0 && label < DATA.classes.length;

// Private windows, full disks and locked-down browsers throw here; the page goes on without.
function remember(key, text) {
  try {
    window.localStorage.setItem(key, text);
  } catch {
    storageWorks = false;
  }
}

function recall(key) {
  try {
    return window.localStorage.getItem(key);
  } catch {
    storageWorks = false;
    return null;
  }
}
