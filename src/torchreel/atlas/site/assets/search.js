// Search in the browser, from a disk or a server. `torchreel.atlas.search` finds the same: see atlas/search/query.py,
// where the ranking is explained. The words lie in small scripts, since pages from a disk may load nothing else.
"use strict";

const torchreelAtlas = (() => {
  const EACH_WORD = 1000;
  const SAME = 100;
  const SAME_LETTERS = 96;
  const IN_PATH = 40;
  const MOST_WORDS = 16;

  let files = null;
  let classes = new Map();
  let present = new Set();
  const shards = new Map();

  // The scripts of the index call these two.
  function takeFiles(table) {
    files = table.files.map(([title, href, path, rank]) => ({ title, href, path, rank }));
    classes = new Map(table.classes.map(([letter, kind, weight, named]) => [letter, { kind, weight, named }]));
    present = new Set(table.shards.split(" "));
  }

  function takeShard(name, text) {
    let word = "";
    const rows = text.split(";").map((row) => {
      const space = row.indexOf(" ");
      word = word.slice(0, Number.parseInt(row[0], 36)) + row.slice(1, space);
      const key = plain(word);
      return { word, key, length: [...key].length, postings: row.slice(space + 1) };
    });
    shards.set(name, rows);
  }

  const typedWords = (text) => (text.match(/[\p{L}\p{N}_]+/gu) ?? []).slice(0, MOST_WORDS);
  const plain = (word) => word.replace(/^_+|_+$/g, "").toLowerCase();
  const parts = (word) => word.match(/[A-Z]+(?![a-z\x80-\uffff])|[A-Z]?[a-z\x80-\uffff]+|[0-9]+/g) ?? [];
  const inARow = (text) => `/${(text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? []).join("/")}/`;

  function shardOf(word) {
    return [...word].slice(0, 2).map((letter) => (/[a-z0-9_]/.test(letter) ? letter : "-")).join("");
  }

  // The shards that a query may ask for, of those that there are.
  function shardsFor(text) {
    const words = typedWords(text).flatMap((word) => [word, ...parts(word)]).map(plain);
    const names = new Set(words.filter((word) => word).map(shardOf));
    return [...names].filter((name) => present.has(name));
  }

  // Small letters are the number of a file, a capital the class of the word there, digits its line: `baA120N`. Read by
  // hand, since a short word has tens of thousands of them.
  function eachMark(postings, take) {
    let file = 0;
    for (let at = 0; at < postings.length; ) {
      let number = 0;
      let code = postings.charCodeAt(at);
      const begin = at;
      for (; code >= 97; code = postings.charCodeAt(++at)) number = number * 26 + code - 97;
      if (at > begin) file = number;
      const letter = postings[at];
      let line = 0;
      for (code = postings.charCodeAt(++at); code <= 57; code = postings.charCodeAt(++at)) line = line * 10 + code - 48;
      take(file, letter, line || 1);
    }
  }

  function improve(match, kind, worth, name, line) {
    if (kind.kind === "path") {
      match.path = Math.max(match.path, worth);
    } else if (worth > match.content) {
      match.content = worth;
      match.kind = kind.kind;
      match.line = line;
      match.name = kind.named ? name : "";
    }
  }

  const noMatch = () => ({ content: 0, path: 0, line: 1, name: "", kind: "path" });

  // In percent; 0 if the row is of another word. A row has the length of its word in characters, as Python counts them.
  function likeness(row, word, typed, length) {
    if (row.key === word) return row.word === typed ? SAME : SAME_LETTERS;
    if (length > 1 && row.key.startsWith(word)) return 40 + Math.floor((40 * length) / row.length);
    return 0;
  }

  function found(typed) {
    const matches = new Map();
    const word = plain(typed);
    if (!word) return matches;
    const length = [...word].length;
    for (const row of shards.get(shardOf(word)) ?? []) {
      const percent = likeness(row, word, typed, length);
      if (!percent) continue;
      eachMark(row.postings, (file, letter, line) => {
        let match = matches.get(file);
        if (!match) matches.set(file, (match = noMatch()));
        const kind = classes.get(letter);
        improve(match, kind, Math.floor((kind.weight * percent) / 100), row.word, line);
      });
    }
    return matches;
  }

  // What each word finds; one that finds nothing is taken apart.
  function matchesOf(text) {
    const byWord = new Map();
    for (const word of typedWords(text)) {
      const whole = found(word);
      const pieces = parts(word);
      if (whole.size || pieces.length < 2) {
        if (!byWord.has(plain(word))) byWord.set(plain(word), whole);
      } else {
        for (const piece of pieces) if (!byWord.has(plain(piece))) byWord.set(plain(piece), found(piece));
      }
    }
    byWord.delete("");
    return [...byWord.values()];
  }

  function scoreOf(matched, words, file, row) {
    let worth = Math.floor(matched.reduce((sum, one) => sum + one.content + one.path, 0) / words);
    if (words > 1 && matched.every((one) => one.path) && inARow(file.path).includes(row)) worth += IN_PATH;
    return EACH_WORD * matched.length + worth + file.rank;
  }

  function resultOf(file, matched, score) {
    const lines = new Set(matched.filter((one) => one.content).map((one) => one.line));
    let best = noMatch();
    if (lines.size < 2 || !matched.every((one) => one.path)) {
      best = matched.reduce((first, one) => (one.content > first.content ? one : first));
    }
    const { path, href } = file;
    return { path, line: best.line, score, title: best.name || file.title, kind: best.kind, href };
  }

  // The best files for a query whose shards are loaded, and how many there are.
  function find(text, limit) {
    const words = matchesOf(text);
    const byFile = new Map();
    for (const matches of words) {
      for (const [number, match] of matches) {
        if (!byFile.has(number)) byFile.set(number, []);
        byFile.get(number).push(match);
      }
    }
    const row = inARow(text);
    const scored = [...byFile].map(([number, matched]) => ({
      number,
      matched,
      score: scoreOf(matched, words.length, files[number], row),
    }));
    scored.sort((one, other) => other.score - one.score || one.number - other.number);
    const best = scored.slice(0, limit).map((one) => resultOf(files[one.number], one.matched, one.score));
    return { results: best, count: scored.length };
  }

  return { files: takeFiles, shard: takeShard, shardsFor, find };
})();

// The page of results; the field is the one that every page has.
if (typeof document !== "undefined") {
  const SHOWN = 50;
  const site = new URL("../", document.currentScript.src);
  const field = document.querySelector('form.search input[name="q"]');
  const list = document.getElementById("search-results");
  const status = document.getElementById("search-status");
  const loading = new Map();
  let asked = 0;
  let selected = 0;

  function load(path) {
    if (!loading.has(path)) {
      const script = document.createElement("script");
      script.src = new URL(path, site).href;
      const done = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${path} cannot be loaded. Make the atlas again.`));
      });
      loading.set(path, done);
      document.head.append(script);
    }
    return loading.get(path);
  }

  function item(result) {
    const link = document.createElement("a");
    const ofFile = result.kind === "path";
    link.href = new URL(ofFile ? result.href : `${result.href}#L${result.line}`, site).href;
    const place = ofFile ? result.path : `${result.path}:${result.line}`;
    for (const [name, text] of [["title", result.title], ["kind", result.kind], ["path", place]]) {
      const part = document.createElement("span");
      part.className = `search-${name}`;
      part.textContent = text;
      link.append(part, " ");
    }
    const row = document.createElement("li");
    row.append(link);
    return row;
  }

  function select(index) {
    list.children[selected]?.classList.remove("selected");
    selected = Math.max(0, Math.min(index, list.children.length - 1));
    list.children[selected]?.classList.add("selected");
    list.children[selected]?.scrollIntoView({ block: "nearest" });
  }

  function show(query, { results, count }) {
    list.replaceChildren(...results.map(item));
    const files = `${count.toLocaleString("en")} ${count === 1 ? "file" : "files"}`;
    if (!query.trim()) status.textContent = "Type a name, a part of one, a file or a word of its documentation.";
    else status.textContent = count > results.length ? `The best ${results.length} of ${files}` : files;
    select(0);
    list.dataset.query = query;
  }

  async function ask(query) {
    const question = ++asked;
    try {
      await load("search/files.js");
      await Promise.all(torchreelAtlas.shardsFor(query).map((name) => load(`search/${name}.js`)));
      // Only the last question is answered: scripts may arrive in another order.
      if (question === asked) show(query, torchreelAtlas.find(query, SHOWN));
    } catch (error) {
      status.textContent = error.message;
    }
  }

  function typed() {
    try {
      history.replaceState(null, "", `?${new URLSearchParams({ q: field.value })}`);
    } catch {
      // Some browsers keep the address of a page from a disk as it is; the results do not need it.
    }
    ask(field.value);
  }

  function openSelected(event) {
    event.preventDefault();
    const link = list.children[selected]?.querySelector("a");
    if (link && list.dataset.query === field.value) location.href = link.href;
    else typed();
  }

  function moved(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.isComposing) return;
    event.preventDefault();
    select(selected + step);
  }

  if (field && list) {
    field.addEventListener("input", typed);
    field.addEventListener("keydown", moved);
    field.form.addEventListener("submit", openSelected);
    field.value = new URLSearchParams(location.search).get("q") ?? "";
    field.focus();
    ask(field.value);
  }
}
