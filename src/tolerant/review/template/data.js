// What the page was built with: an array for each column, an entry for each suspect, most doubtful first.
// Every value reaches the page through textContent or an attribute setter, never as HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);
const COUNT = DATA.ids.length;
const className = (label) => DATA.classes[label];
const byId = (id) => document.getElementById(id);
const percent = (p) => (p < 0.01 ? "< 1 %" : p > 0.99 ? "> 99 %" : `${Math.round(100 * p)} %`);
const grouped = (n) => n.toLocaleString("en-US");

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "text") element.textContent = value;
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
