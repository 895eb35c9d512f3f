// Files for `tolerant train --labels`. The guard is the one of tolerant.csv_cells.
const FORMULA = /^[\s\x1c-\x1f\x85]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;
const NUMBER = /^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;
const guard = (text) => (text.startsWith("'") || (FORMULA.test(text) && !NUMBER.test(text)) ? `'${text}` : text);
const cell = (text) => {
  const guarded = guard(text);
  return /[",;\t\r\n]|^\s|\s$/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
};

function corrections() {
  const rows = [];
  for (let row = 0; row < COUNT; row += 1) {
    const decision = decisionOf(row);
    if (decision === null) continue;
    const new_label = decision === "drop" ? "" : className(decided[row]);
    rows.push({ id: DATA.ids[row], given_label: className(DATA.given[row]), decision, new_label, row_digest: DATA.digests[row] });
  }
  return rows;
}

function asCsv() {
  const lines = corrections().map((c) => [c.id, c.given_label, c.decision, c.new_label, c.row_digest].map(cell).join(","));
  return `\ufeff${["id,given_label,decision,new_label,row_digest", ...lines].join("\r\n")}\r\n`; // Excel needs the mark to read UTF-8
}

const asJson = () =>
  `${JSON.stringify({ format: "tolerant-corrections", version: 1, run: DATA.run, corrections: corrections() }, null, 2)}\n`;

function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  exported = true;
}
