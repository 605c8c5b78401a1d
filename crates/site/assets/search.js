// Finds sections by words. The index (search-index.js) has the text of every section; what is asked
// for never leaves the browser. Results are text nodes, so no page can bring markup in.
(() => {
  'use strict';

  const RESULTS_MAX = 40;
  const SNIPPET_CHARACTERS = 220;
  // Weights of a word by where it stands, beside its rarity.
  const IN_TITLE = 12;
  const IN_HEADING = 8;
  const WHOLE_WORD = 2;
  const IN_A_ROW = 1.5;
  // What is for those who change Cove, or says what has changed, comes behind what says how it is.
  const NOT_FOR_USERS = /^(changelog|architecture|contributing|readme|bench|decisions|internals)\b/;
  const FOR_OTHERS = 0.5;

  const { pages, sections } = self.coveSearch;

  // The plural is the singular, so that each finds the other.
  const fold = (word) => (word.length > 3 && /[^s]s$/.test(word) ? word.slice(0, -1) : word);
  const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];

  // For each word: in which sections it stands, with its weight there.
  const index = new Map();
  sections.forEach(([page, , heading, text], at) => {
    const add = (words, weight) => {
      for (const word of words.map(fold)) {
        let places = index.get(word);
        if (!places) index.set(word, (places = new Map()));
        places.set(at, (places.get(at) ?? 0) + weight);
      }
    };
    if (heading === '') add(wordsOf(pages[page][1]), IN_TITLE);
    add(wordsOf(heading), IN_HEADING);
    add(wordsOf(text), 1);
  });

  // Words of each section, so that a long one is not found for everything (BM25).
  const lengths = sections.map(([, , heading, text]) => wordsOf(heading).length + wordsOf(text).length);
  const average = lengths.reduce((sum, it) => sum + it, 0) / sections.length;

  function scoresOf(word) {
    const scores = new Map();
    for (const [known, places] of index) {
      if (!known.startsWith(word)) continue;
      const rarity = Math.log(1 + sections.length / places.size) * (known === word ? WHOLE_WORD : 1);
      for (const [at, weight] of places) {
        const score = rarity * (weight / (weight + 0.3 + 0.9 * lengths[at] / average));
        scores.set(at, Math.max(scores.get(at) ?? 0, score));
      }
    }
    return scores;
  }

  /** Sections that have all words, or the most of them; the best first, those with all in a row before. */
  function find(words, asked) {
    const found = new Map();
    for (const word of words) {
      for (const [at, score] of scoresOf(word)) {
        const sum = found.get(at) ?? { at, score: 0, count: 0 };
        sum.score += score;
        sum.count += 1;
        found.set(at, sum);
      }
    }
    const most = Math.max(0, ...[...found.values()].map((it) => it.count));
    const best = [...found.values()].filter((it) => it.count === most);
    for (const it of best) {
      const [, , heading, text] = sections[it.at];
      if (words.length > 1 && `${heading} ${text}`.toLowerCase().includes(asked)) it.score *= IN_A_ROW;
      if (NOT_FOR_USERS.test(pages[sections[it.at][0]][0])) it.score *= FOR_OTHERS;
    }
    return best.sort((one, other) => other.score - one.score || one.at - other.at);
  }

  /** Puts text into an element, with the words marked that were searched for. */
  function mark(element, text, words) {
    let from = 0;
    for (const match of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
      if (!words.some((word) => fold(match[0].toLowerCase()).startsWith(word))) continue;
      const marked = document.createElement('mark');
      marked.textContent = match[0];
      element.append(text.slice(from, match.index), marked);
      from = match.index + match[0].length;
    }
    element.append(text.slice(from));
  }

  function snippet(text, words) {
    const lower = text.toLowerCase();
    const places = words.map((word) => lower.search(new RegExp(`(?<![\\p{L}\\p{N}_])${word}`, 'u'))).filter((it) => it >= 0);
    const first = places.length ? Math.min(...places) : 0;
    const from = first < SNIPPET_CHARACTERS / 2 ? 0 : text.indexOf(' ', first - SNIPPET_CHARACTERS / 3) + 1;
    const cut = text.slice(from, from + SNIPPET_CHARACTERS);
    return `${from > 0 ? '… ' : ''}${cut}${from + SNIPPET_CHARACTERS < text.length ? ' …' : ''}`;
  }

  function item(at, words) {
    const [page, anchor, heading, text] = sections[at];
    const [address, title] = pages[page];
    const row = document.createElement('li');
    const link = document.createElement('a');
    link.href = anchor ? `${address}#${anchor}` : address;
    mark(link, heading || title, words);
    row.append(link);
    if (heading) {
      const where = document.createElement('span');
      where.className = 'where';
      where.textContent = title;
      row.append(' ', where);
    }
    const lines = document.createElement('p');
    mark(lines, snippet(text, words), words);
    row.append(lines);
    return row;
  }

  const input = document.querySelector('input[type=search]');
  const results = document.getElementById('results');
  const count = document.getElementById('count');

  function show() {
    const asked = input.value.trim();
    const words = [...new Set(wordsOf(asked).map(fold))];
    const found = words.length ? find(words, asked.toLowerCase()) : [];
    results.replaceChildren(...found.slice(0, RESULTS_MAX).map(({ at }) => item(at, words)));
    const places = found.length === 1 ? '1 section' : `${found.length} sections`;
    const shown = found.length > RESULTS_MAX ? `, the best ${RESULTS_MAX} of them here` : '';
    count.textContent = words.length ? `${places} found for “${asked}”${shown}.` : 'Type what you look for.';
    document.title = asked ? `${asked} · Search · Cove` : 'Search · Cove';
  }

  input.value = new URLSearchParams(location.search).get('q') ?? '';
  show();
  input.addEventListener('input', show);
  input.form.addEventListener('submit', (event) => {
    event.preventDefault();
    history.replaceState(null, '', `?q=${encodeURIComponent(input.value.trim())}`);
    results.querySelector('a')?.focus();
  });
  input.focus();
})();
