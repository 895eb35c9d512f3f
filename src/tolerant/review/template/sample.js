// A random sample: the share of its labels that a person found wrong is that of all labels, without bias.
// Wilson's interval at 95 %. Of what was reviewed before, nothing is wrong, so DATA.sampleOf scales it.
function wilson(wrong, total) {
  const z = 1.959964;
  const middle = (wrong + (z * z) / 2) / (total + z * z);
  const reach = (z / (total + z * z)) * Math.sqrt((wrong * (total - wrong)) / total + (z * z) / 4);
  return [Math.max(0, middle - reach), Math.min(1, middle + reach)];
}

const inPercent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

function paintSample() {
  if (DATA.sampleOf === null) return;
  let wrong = 0;
  for (let row = 0; row < COUNT; row += 1) if (decided[row] !== NONE && decisionOf(row) !== "keep") wrong += 1;
  const [low, high] = decidedCount ? wilson(wrong, decidedCount) : [0, 1];
  byId("sample-rate").textContent = decidedCount ? inPercent((DATA.sampleOf * wrong) / decidedCount) : "–";
  byId("sample-between").textContent = decidedCount
    ? `between ${inPercent(DATA.sampleOf * low)} and ${inPercent(DATA.sampleOf * high)}, by ${grouped(wrong)} wrong of ${grouped(decidedCount)} decided`
    : "appears as you decide";
}
