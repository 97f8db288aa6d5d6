// The search of the site. The theme's worker finds the sections that contain a word of the question, and marks the
// words; this file decides which words are searched, and in which order the sections are shown.
//
// The theme alone ranks badly: it searches each word of a question, also "how" and "do", as the beginning of a word, and
// a title counts a thousand times a text. Here words are stemmed, stop words are left out, words of one line of
// search_words.txt find each other, and the rank is BM25F over title, title of the page, and text.
"use strict";

const THEME = new URL("assets/javascripts/workers/" + new URL(self.location).searchParams.get("theme"), self.location);
const SETUP = 0, QUERY = 2, RESULT = 3;
const TITLE = 6, PAGE = 1.5, TEXT = 1, SATURATION = 3, LENGTH = 0.6, COVERAGE = 0.6, HEADING = 0.8;
const SYNONYM = 0.4, PREFIX = 0.6, MISSPELT = 0.5, PART = 0.35;
const ASKED = new Set(("how what which where when why who do does did done can could should would will is are be am was " +
  "i my me we you your it its the a an to of in on for with and or at from by as that this there have has get got use " +
  "using want need make please help about way if so any some work works into not too just mine know good always " +
  "correctly safely properly easy many during while").split(" "));

let sections = [], postings = new Map(), synonyms = new Map(), phrases = new Map(), longest = 1, average = 1;
const stems = new Map();

function stem(word) {
  let found = stems.get(word);
  if (found === undefined) {
    found = /^[a-z]+$/.test(word) ? self.lunr.stemmer(new self.lunr.Token(word)).toString() : word;
    stems.set(word, found);
  }
  return found;
}

// The words of a text: `save.every`, `weight_decay` and `ModuleNotFoundError` are several words, `1.16` is one.
const words = (text) =>
  (text.replace(/([a-z])([A-Z][a-z])/g, "$1 $2").toLowerCase().replace(/<[^>]*>/g, " ").replace(/&[a-z]+;/g, " ").match(/[a-z0-9]+(?:\.\d+)*/g) || []);

// Stems of a text, and after the last word of a phrase of search_words.txt the phrase.
function terms(text) {
  const list = words(text).map(stem), found = [];
  list.forEach((one, at) => {
    found.push(one);
    for (let size = 2; size <= longest && size <= at + 1; size++) {
      const phrase = list.slice(at + 1 - size, at + 1).join(" ");
      if (phrases.has(phrase)) found.push(phrase);
    }
  });
  return found;
}

function counts(text) {
  const result = new Map();
  for (const one of terms(text)) result.set(one, (result.get(one) || 0) + 1);
  return result;
}

function learnWords(lines) {
  for (const line of lines.split("\n")) {
    if (!line.trim() || line.startsWith("#")) continue;
    const group = line.split(",").map((one) => words(one));
    const names = group.map((one) => one.map(stem).join(" "));
    group.forEach((one, at) => {
      longest = Math.max(longest, one.length);
      if (one.length > 1) phrases.set(names[at], one);
      const others = synonyms.get(names[at]) || new Set();
      names.forEach((name) => name !== names[at] && others.add(name));
      synonyms.set(names[at], others);
    });
  }
}

function learnSections(docs) {
  const titles = new Map(docs.filter((one) => !one.location.includes("#")).map((one) => [one.location, one.title]));
  let total = 0;
  sections = docs.map((doc, at) => {
    const page = doc.location.split("#")[0], text = counts(doc.text);
    const size = [...text.values()].reduce((sum, one) => sum + one, 0);
    total += size;
    const fields = [[counts(doc.title), TITLE], [text, TEXT]];
    if (page !== doc.location) fields.push([counts(titles.get(page) || ""), PAGE]);
    const title = new Set(words(doc.title).filter((one) => !ASKED.has(one)).map(stem));
    return { doc, at, size, title, fields, boost: doc.boost === undefined ? 1 : doc.boost };
  });
  average = total / sections.length;
  for (const { at, size, fields } of sections) {
    const weights = new Map();
    for (const [field, weight] of fields) {
      const norm = weight === TEXT ? 1 - LENGTH + LENGTH * size / average : 1;
      for (const [term, count] of field) weights.set(term, (weights.get(term) || 0) + weight * count / norm);
    }
    for (const [term, weight] of weights) {
      if (!postings.has(term)) postings.set(term, new Map());
      postings.get(term).set(at, weight);
    }
  }
}

// Whether one letter more, less, or another one, or two exchanged letters, make one word the other.
function near(a, b) {
  if (Math.abs(a.length - b.length) > 1) return false;
  let at = 0;
  while (at < a.length && a[at] === b[at]) at++;
  const [x, y] = [a.slice(at), b.slice(at)];
  return x.slice(1) === y || x === y.slice(1) || x.slice(1) === y.slice(1) ||
    (x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2));
}

// What a word of the question is searched as, with weights: itself, its synonyms, and, if no page has the word, words
// that begin with it or differ in one letter.
function variants(name, typing) {
  const found = new Map([[name, 1]]);
  for (const other of synonyms.get(name) || []) found.set(other, SYNONYM);
  if (!postings.has(name) && !synonyms.has(name) || typing && name.length < 4)
    for (const other of postings.keys()) {
      if (found.has(other) || other.includes(" ")) continue;
      if (name.length > 1 && other.startsWith(name)) found.set(other, PREFIX);
      else if (!postings.has(name) && name.length > 3 && near(name, other)) found.set(other, MISSPELT);
    }
  return found;
}

// The parts of a question: a phrase of search_words.txt is one part, and its words count a little.
function parts(question) {
  const list = words(question), open = !/[\s?.]$/.test(question), result = [];
  const meant = list.filter((one) => !ASKED.has(one)).length ? (one) => !ASKED.has(one) : () => true;
  for (let at = 0; at < list.length; ) {
    let size = Math.min(longest, list.length - at);
    while (size > 1 && !phrases.has(list.slice(at, at + size).map(stem).join(" "))) size--;
    const taken = list.slice(at, at + size), name = taken.map(stem).join(" ");
    at += size;
    if (size > 1) {
      const found = variants(name, false);
      for (const one of taken.filter(meant)) if (!found.has(stem(one))) found.set(stem(one), PART);
      result.push({ shown: taken.join(" "), found });
    } else if (meant(name) && meant(taken[0])) result.push({ shown: taken[0], found: variants(name, open && at === list.length) });
  }
  return result;
}

// The share of a section's title that the question has: "what is a bundle" is that title, and "verify" is not in it.
function covered(names, title) {
  return title.size ? [...title].filter((one) => names.has(one)).length / title.size : 0;
}

// Scores of sections by their number: BM25F of the parts, times the share of the question that a section has, more if
// the question has the section's title.
function scores(asked) {
  const total = new Map(), share = new Map();
  let all = 0;
  for (const { found } of asked) {
    const weights = new Map();
    for (const [term, weight] of found)
      for (const [at, count] of postings.get(term) || [])
        weights.set(at, Math.max(weights.get(at) || 0, 0) + weight * count);
    const idf = Math.log(1 + (sections.length - weights.size + 0.5) / (weights.size + 0.5));
    all += idf;
    for (const [at, weight] of weights) {
      total.set(at, (total.get(at) || 0) + idf * weight / (SATURATION + weight));
      share.set(at, (share.get(at) || 0) + idf);
    }
  }
  const names = new Set(asked.flatMap(({ found }) => [...found.keys()].flatMap((term) => term.split(" "))));
  for (const [at, score] of total) {
    const { boost, title } = sections[at];
    total.set(at, score * (share.get(at) / all) ** COVERAGE * boost * (1 + HEADING * covered(names, title)));
  }
  return total;
}

// Groups of sections by page, as the theme shows them: the best page first, and its best section first.
function arranged(question, marked) {
  const asked = parts(question), pages = new Map();
  const ranked = [...scores(asked)].sort((a, b) => b[1] - a[1]);
  for (const [at, score] of ranked) {
    const { doc } = sections[at], [page] = doc.location.split("#");
    if (!pages.has(page)) pages.set(page, []);
    const shown = marked.get(doc.location) || { ...doc, text: (doc.text.match(/^<p>[^]*?<\/p>/) || [""])[0] };
    pages.get(page).push({ ...shown, score, terms: {} });
  }
  const articles = new Map(sections.map(({ doc }) => [doc.location, doc]));
  for (const [page, group] of pages)
    if (!group.some((one) => one.location === page)) group.push({ ...articles.get(page), score: 0, terms: {} });
  return [...pages.values()];
}

// What the theme's worker marks: the words of the question and of their synonyms, as beginnings of words.
function searched(question) {
  const beginnings = new Set();
  for (const { found } of parts(question))
    for (const term of found.keys()) for (const one of term.split(" ")) if (!ASKED.has(one)) beginnings.add(one.replace(/i$/, ""));
  return [...beginnings].slice(0, 60).join(" ");
}

const theme = (data) => dispatchEvent(new MessageEvent("message", { data }));
const answer = self.postMessage.bind(self);
let question = "", own = false;

self.postMessage = (message) => {
  if (message.type !== RESULT) return answer(message);
  const marked = new Map(message.data.items.flat().map((one) => [one.location, one]));
  answer({ type: RESULT, data: { items: question.trim() ? arranged(question, marked) : [] } });
};

addEventListener("message", async (event) => {
  if (own) return;
  event.stopImmediatePropagation();
  const message = event.data;
  if (message.type === SETUP) {
    learnWords(await (await fetch(new URL("search_words.txt", self.location))).text());
    learnSections(message.data.docs);
  } else if (message.type === QUERY) question = message.data;
  own = true;
  try {
    theme(message.type === QUERY ? { ...message, data: searched(question) } : message);
  } finally {
    own = false;
  }
});

importScripts(THEME);
