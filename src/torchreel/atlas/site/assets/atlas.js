// What a page of the atlas does beyond being read: light or dark, keys, tables that sort, and where in it one is.
"use strict";
(() => {
  const KEY = "torchreel-atlas-theme";
  const root = document.documentElement;

  // A browser may refuse storage to pages from disk: the choice is then this page's only.
  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* not remembered */ } };
  const theme = stored();
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  function switchTheme() {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    store(root.dataset.theme);
  }

  function focusSearch(event) {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const input = document.querySelector(".search input");
    if (!input) return;
    event.preventDefault();
    input.select();
  }

  // A server may forbid forms: the same address is asked for by script.
  function openSearch(event) {
    if (event.defaultPrevented) return;
    event.preventDefault();
    const form = event.currentTarget;
    location.assign(`${form.action}?${new URLSearchParams(new FormData(form))}`);
  }

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const before = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

  function sortBy(table, head) {
    const column = head.cellIndex;
    const rows = [...table.tBodies[0].rows];
    // Numbers begin with the largest, names with the first.
    const first = head.classList.contains("n") ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.ariaSort === first ? other : first;
    for (const one of head.parentNode.cells) one.removeAttribute("aria-sort");
    head.ariaSort = order;
    const sign = order === "ascending" ? 1 : -1;
    rows.sort((a, b) => sign * before(value(a, column), value(b, column)));
    table.tBodies[0].append(...rows);
  }

  function makeSortable(table) {
    for (const head of table.tHead.rows[0].cells) {
      if (!head.textContent) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortBy(table, head));
      head.append(button);
    }
  }

  // Marks the section in view, and within the source the symbol whose lines are.
  function follow(contents) {
    const sections = [...contents.querySelectorAll("ul:first-child a")].map((link) => ({
      link, heading: document.getElementById(decodeURIComponent(link.hash.slice(1))),
    }));
    const symbols = [...contents.querySelectorAll("[data-line]")].map((link) => ({ link, line: Number(link.dataset.line) }));
    const source = document.querySelector(".source");
    const current = new Set();
    let asked = false;

    function lineInView() {
      const box = source.getBoundingClientRect();
      const at = document.elementFromPoint(box.right - 4, 96)?.closest("[id^=L]");
      return at && source.contains(at) ? Number(at.id.slice(1)) : 0;
    }
    function mark() {
      asked = false;
      const now = new Set();
      const above = sections.filter(({ heading }) => heading && heading.getBoundingClientRect().top < 120);
      if (above.length) now.add(above[above.length - 1].link);
      const line = source && symbols.length ? lineInView() : 0;
      const passed = line ? symbols.filter((symbol) => symbol.line <= line) : [];
      if (passed.length) now.add(passed[passed.length - 1].link);
      for (const link of current) if (!now.has(link)) { link.removeAttribute("aria-current"); current.delete(link); }
      for (const link of now) if (!current.has(link)) { link.setAttribute("aria-current", "true"); current.add(link); reveal(link); }
    }
    function reveal(link) {
      const box = contents.getBoundingClientRect();
      const at = link.getBoundingClientRect();
      if (at.top < box.top || at.bottom > box.bottom) contents.scrollTop += at.top - box.top - box.height / 3;
    }
    addEventListener("scroll", () => { if (!asked) { asked = true; requestAnimationFrame(mark); } }, { passive: true });
    mark();
  }

  document.addEventListener("keydown", focusSearch);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("button.theme");
    button.hidden = false;
    button.addEventListener("click", switchTheme);
    document.querySelector("form.search").addEventListener("submit", openSearch);
    document.querySelectorAll("table.sortable").forEach(makeSortable);
    const contents = document.querySelector(".contents");
    if (contents) follow(contents);
  });
})();
