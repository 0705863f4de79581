// Search of the index page: words of the entries, and the patterns of a pasted line of a log.
"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const list = find("list"), form = find("search"), box = find("q"), status = find("status");
  const rows = [...list.children], places = rows.map((_, n) => n);
  const filters = [...form.querySelectorAll("select")];
  const words = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const LINE = 12, LONGEST = 4000, NEAREST = 12;
  const kept = {};

  // The same expressions that the matcher runs, as far as this engine takes them.
  const compiled = (patterns) => patterns.flatMap((pattern) => {
    const flags = /^\(\?([a-z]+)\)/.exec(pattern);
    const text = pattern.slice(flags ? flags[0].length : 0).replace(/\(\?P<\w+>/g, "(?:");
    try {
      return [new RegExp(text, flags && flags[1].includes("i") ? "i" : "")];
    } catch {
      return [];
    }
  });

  // Places of the entries with a signature that hits the line; fallbacks are for lines of no other.
  const ofLine = (text) => {
    if (text.length < LINE || !/\s/.test(text)) return new Set();
    const line = text.slice(0, LONGEST);
    for (const kind of ["patterns", "fallbacks"]) {
      kept[kind] ??= data.map((entry) => compiled(entry[kind]));
      const hit = places.filter((n) => kept[kind][n].some((pattern) => pattern.test(line)));
      if (hit.length) return new Set(hit);
    }
    return new Set();
  };

  // How well a word fits an entry: as a word of its names, the begin of one, in its text.
  const points = (word, { strong, weak }) => {
    if (strong.includes(` ${word} `)) return 9;
    if (strong.includes(` ${word}`)) return 6;
    if (weak.includes(` ${word} `)) return 2;
    return word.length > 2 && (strong.includes(word) || weak.includes(word)) ? 1 : 0;
  };

  // Places of the entries that answer the query, best first, and what to say of them.
  const answer = (text) => {
    const asked = [...new Set(words(text))];
    if (!asked.length) return { best: places, said: "" };
    const scores = places.map(() => 0), counts = places.map(() => 0);
    for (const word of asked) {
      const found = data.map((entry) => points(word, entry));
      const rarity = Math.log(1 + rows.length / (1 + found.filter(Boolean).length));
      for (const n of places) {
        scores[n] += found[n] * rarity;
        counts[n] += found[n] > 0;
      }
    }
    const id = asked.join("-");
    for (const n of places) scores[n] += rows[n].dataset.id === id ? 1e6 : 0;
    const order = [...places].sort((a, b) => scores[b] - scores[a] || a - b);
    const hit = ofLine(text);
    if (hit.size) return { best: order.filter((n) => hit.has(n)), said: "with a signature that hits this line" };
    const whole = order.filter((n) => counts[n] === asked.length);
    if (whole.length) return { best: whole, said: "" };
    return { best: order.filter((n) => scores[n]).slice(0, NEAREST), said: "that come nearest; none has all words" };
  };

  const fits = (row) => filters.every(({ name, value }) =>
    !value || row.dataset[name].split(" ").includes(value));

  const show = () => {
    const { best, said } = answer(box.value);
    const shown = best.filter((n) => fits(rows[n]));
    const visible = new Set(shown);
    for (const n of places) rows[n].hidden = !visible.has(n);
    list.append(...[...shown, ...places.filter((n) => !visible.has(n))].map((n) => rows[n]));
    status.textContent = `${shown.length} of ${rows.length} failures ${said}`.trim();
    const asked = `${new URLSearchParams([...new FormData(form)].filter(([, value]) => value))}`;
    if (find("seen")) find("seen").hidden = asked !== "";
    try {
      history.replaceState(null, "", asked ? `?${asked}` : location.pathname);
    } catch {
      // A browser may forbid it for files: the address then does not hold the query.
    }
  };

  const links = () =>
    [...list.children].filter((row) => !row.hidden).map((row) => row.querySelector("a"));

  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements.namedItem(name);
    if (field) field.value = value;
  }
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [first] = links();
    if (first) first.click();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) {
      event.preventDefault();
      box.focus();
      box.select();
    } else if (event.key === "Escape" && document.activeElement === box) {
      box.value = "";
      show();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const all = links(), at = all.indexOf(document.activeElement);
      if (at < 0 && document.activeElement !== box) return;
      const to = at + (event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      (to < 0 ? box : all[Math.min(to, all.length - 1)] ?? box).focus();
    }
  });
  show();
})();
