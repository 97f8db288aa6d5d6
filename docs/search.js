// The search of the site. The theme's worker finds the sections that contain a word of the question, and marks the
// words; this file decides which words are searched, and in which order the sections are shown.
//
// The theme alone ranks badly: it searches each word of a question, also "how" and "do", as the beginning of a word, and
// a title counts a thousand times a text. Here words are stemmed, stop words are left out, words of one line of
// search_words.txt find each other, and the rank is BM25F over title, other names, what users ask, title of the page, and
// text. The other names are what other tools call a setting, and asked.toml has what users ask for a section; hooks.py
// adds both to the index. A section also counts more if one phrase of asked.toml resembles the question: see resembling().
"use strict";

const THEME = new URL("assets/javascripts/workers/" + new URL(self.location).searchParams.get("theme"), self.location);
const SETUP = 0, QUERY = 2, RESULT = 3;
// Weights of a section's fields; WHOLE is the factor of an identifier.
const TITLE = 8, NAME = 6, ASK = 2, PAGE = 1, TEXT = 1, WHOLE = 3;
// How a part of a question counts: see scores().
const SATURATION = 6, LENGTH = 0.75, COVERAGE = 0.6, HEADING = 0.8, MIX = 0.75, MOST = 2, LESS = 0.85, FAINT = 0.5, LIKE = 1, CLOSE = 1.5, RAREST = 5.2;
// How the best BEST sections are compared: see refined(). The weights were fitted to tests/docs/questions.toml.
const BEST = 30, WORDS = 0.91, KNOWN = 1.17, SAID = 0.8, CALLED = 0.49, TITLED = 0.138, ALIKE = 0.62, PAIRS = 1, ASKS = 0.15;
// In a long question one word says less: what resembles the question, and titles and names, count more with the logarithm of
// its length.
const RESEMBLES = 0.8, KNOWS = 0.5;
// Weights of what a word of a question is searched as; PART and INNER are those of the words of a phrase or identifier.
const SYNONYM = 0.6, PREFIX = 0.6, MISSPELT = 0.5, FAMILY = 0.4, PART = 0.2, INNER = 0.2;
const ASKED = new Set(("how what which where when why who do does did done can could should would will is are be am was " +
  "i my me we you your it its the a an to of in on for with and or at from by as that this there have has get got use " +
  "using want need make please help about way if so any some work works into not too just mine know good always " +
  "correctly safely properly easy many during while").split(" "));
// Words that say little about a topic: they count half, as sizes do. They are the lines of search_words.txt with `-`.
const WEAK = new Set();

// A number or a size, such as `7b` and `80gb`.
const SIZE = /^[\d.]+[kmbg]?b?$/;

// Words that the stemmer would take for a word of another meaning: `checkpoint`, `conversation`, `import`, `generation`,
// `position`, `terminate`.
const OTHERS = new Map([["checkpointing", "checkpointing"], ["conversion", "convert"], ["conversions", "convert"],
  ["important", "important"], ["general", "general"], ["generic", "generic"], ["positive", "positive"],
  ["terminal", "terminal"], ["completion", "completion"], ["completions", "completion"], ["activation", "activation"],
  ["activations", "activation"], ["computer", "computer"], ["customer", "customer"], ["several", "several"]]);

// The verbs of irregular forms, which the stemmer does not know. `chosen`, `left` and `found` are not here: they have other
// meanings.
const VERBS = new Map(["begin began begun", "break broke broken", "bring brought", "build built", "buy bought",
  "catch caught", "choose chose", "draw drew drawn", "fall fell fallen", "feed fed", "forget forgot forgotten",
  "freeze froze frozen", "give gave given", "go went gone", "grow grew grown", "hang hung", "hide hid hidden", "keep kept",
  "know knew known", "learn learnt", "lose lost", "make made", "overwrite overwrote overwritten", "rerun reran",
  "rise rose risen", "run ran", "say said", "see saw seen", "send sent", "show shown", "shrink shrank shrunk",
  "speak spoke spoken", "spend spent", "take took taken", "teach taught", "tell told", "think thought",
  "throw threw thrown", "understand understood", "write wrote written"]
  .flatMap((line) => line.split(" ").map((form, _, [verb]) => [form, verb])));

// The code of a message: alone, it asks for the section of its rule.
const CODE = /^xp\d{3}$/;

let sections = [], postings = new Map(), synonyms = new Map(), phrases = new Map(), longest = 1, average = 1;
let asked = [], askedBy = new Map();
const stems = new Map();

function stem(word) {
  let found = stems.get(word);
  if (found === undefined) {
    const plain = VERBS.get(word) || word;
    found = OTHERS.get(plain) || (/^[a-z]+$/.test(plain) ? self.lunr.stemmer(new self.lunr.Token(plain)).toString() : plain);
    stems.set(word, found);
  }
  return found;
}

// What says nothing about the topic: names of exceptions that are raised for many reasons, and `doesn't`, which would be
// the words `doesn` and `t`.
const RAISED = /\b(?:(?:Runtime|Value|Type|OS|Attribute|Assertion|Index)Error|(?:User|Future|Deprecation|Runtime)Warning)\b/g;
const NEGATED = /\b(?:ca|do|does|did|is|are|wo|was|could|would|should|has|have)n['’]?t\b|['’]s\b/gi;

// The words of a text: `save.every`, `weight_decay` and `ModuleNotFoundError` are several words, `1.16` is one.
function words(text) {
  const plain = text.replace(/<[^>]*>/g, " ").replace(/&[a-z]+;/g, " ").replace(/llama[- ]factory/gi, "llamafactory");
  const split = (one) => one.replace(/([a-z])([A-Z][a-z])/g, "$1 $2").toLowerCase().match(/[a-z0-9]+(?:\.\d+)*/g);
  return split(plain.replace(RAISED, " ").replace(NEGATED, " ")) || split(plain) || [];
}

// A typed text is no HTML: `<think>` and `<|im_end|>` are words.
const typed = (text) => text.replace(/[<>]/g, " ");

// Names such as `micro_batch_size` in a text or a question: each is one term, besides its words.
const identifiers = (text) => text.toLowerCase().match(/[a-z0-9]+(?:_[a-z0-9]+)+/g) || [];

// Stems of a text, its identifiers, and after the last word of a phrase of search_words.txt the phrase.
function terms(text) {
  const list = words(text).map(stem), found = identifiers(text);
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

// The names that other tools have for a setting: each word of them counts once.
const named = (names) => new Map(names.flatMap(terms).map((one) => [one, 1]));

function learnWords(lines) {
  for (const line of lines.split("\n")) {
    if (!line.trim() || line.startsWith("#")) continue;
    if (line.startsWith("- ")) {
      for (const one of words(line)) WEAK.add(one);
      continue;
    }
    const [from, to = from] = line.split(">").map((side) => side.split(",").map(words).filter((one) => one.length));
    const finds = to.map((one) => one.map(stem).join(" "));
    for (const one of [...from, ...to]) {
      const name = one.map(stem).join(" ");
      longest = Math.max(longest, one.length);
      if (one.length > 1) phrases.set(name, one);
      if (!from.includes(one)) continue;
      const others = synonyms.get(name) || new Set();
      finds.forEach((other) => other !== name && others.add(other));
      synonyms.set(name, others);
    }
  }
}

function learnSections(docs) {
  const titles = new Map(docs.filter((one) => !one.location.includes("#")).map((one) => [one.location, one.title]));
  let total = 0;
  sections = docs.map((doc, at) => {
    const page = doc.location.split("#")[0], text = counts(doc.text);
    const size = [...text.values()].reduce((sum, one) => sum + one, 0);
    total += size;
    const fields = [[counts(doc.title), TITLE], [text, TEXT], [named(doc.names || []), NAME], [named(askedFor(doc)), ASK]];
    if (page !== doc.location) fields.push([counts(titles.get(page) || ""), PAGE]);
    const title = new Set(words(doc.title).filter((one) => !ASKED.has(one)).map(stem));
    return { doc, at, size, title, fields, boost: doc.boost === undefined ? 1 : doc.boost };
  });
  average = total / sections.length;
  for (const { at, size, fields } of sections) {
    const weights = new Map();
    for (const [field, weight] of fields) {
      const norm = weight === TEXT ? 1 - LENGTH + LENGTH * size / average : 1;
      for (const [term, count] of field)
        weights.set(term, (weights.get(term) || 0) + (term.includes("_") ? WHOLE : 1) * weight * count / norm);
    }
    for (const [term, weight] of weights) {
      if (!postings.has(term)) postings.set(term, new Map());
      postings.get(term).set(at, weight);
    }
  }
  docs.forEach((doc, at) => askedFor(doc).forEach((phrase) => learnAsked(at, phrase)));
}

const askedFor = (doc) => (doc.asked || []).map(typed);

// How rare a term is that so many sections have. A word of one section says hardly more than one of five.
const rarity = (count) => Math.min(RAREST, Math.log(1 + (sections.length - count + 0.5) / (count + 0.5)));

// A phrase is cut into parts as a question is.
function learnAsked(at, phrase) {
  const names = new Set(parts(phrase + " ").map(({ found }) => found.keys().next().value));
  const known = [...names].map((name) => [name, rarity((postings.get(name) || new Map()).size)]);
  for (const [name, idf] of known) {
    if (!askedBy.has(name)) askedBy.set(name, []);
    askedBy.get(name).push([asked.length, idf]);
  }
  asked.push({ at, total: known.reduce((sum, [, idf]) => sum + idf, 0) });
}

// How much of the question and of a phrase is the same, from 0 to 1, by the number of the section: its best phrase, and the
// sum of the squares of all. The parts have the importance that scores() gives them.
function resembling(question, all) {
  const shared = new Map(), best = new Map(), sum = new Map();
  for (const { found, idf } of question) {
    const here = new Map();
    for (const [term, weight] of found)
      for (const [phrase, rare] of askedBy.get(term) || [])
        if (weight > (here.get(phrase) || [0])[0]) here.set(phrase, [weight, rare]);
    for (const [phrase, [weight, rare]] of here) {
      const [asks, has] = shared.get(phrase) || [0, 0];
      shared.set(phrase, [asks + weight * idf, has + weight * rare]);
    }
  }
  for (const [phrase, [asks, has]] of shared) {
    const { at, total } = asked[phrase], part = asks / all, whole = Math.min(1, has / total);
    best.set(at, Math.max(best.get(at) || 0, part ** CLOSE * whole));
    sum.set(at, (sum.get(at) || 0) + (part * whole) ** 2);
  }
  return { best, sum };
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
// that begin with it or differ in one letter. `qwen9` is `qwen`, too.
function variants(name, typing) {
  const found = new Map([[name, 1]]), known = postings.has(name) || synonyms.has(name);
  for (const other of synonyms.get(name) || []) found.set(other, SYNONYM);
  if (!known || typing && name.length < 3)
    for (const other of postings.keys()) {
      if (found.has(other) || /[ _]/.test(other)) continue;
      if (name.length > 1 && other.startsWith(name)) found.set(other, PREFIX);
      else if (!known && name.length > 3 && near(name, other)) found.set(other, MISSPELT);
    }
  const [, family] = name.match(/^([a-z]{3,})\d[\d.]*$/) || [];
  if (family && postings.has(stem(family))) found.set(stem(family), FAMILY);
  return found;
}

// The parts of a question: an identifier that a page has and a phrase of search_words.txt are one part each, and their
// words count a little.
function parts(question) {
  const result = [];
  const rest = question.replace(/\w+/g, (one) => {
    const [name] = identifiers(one);
    if (name !== one.toLowerCase() || !postings.has(name)) return one;
    const found = new Map([[name, 1]]);
    for (const word of words(one)) if (!ASKED.has(word)) found.set(stem(word), INNER);
    result.push({ shown: name, found });
    return " ";
  });
  return [...result, ...spoken(rest)];
}

// A word that no page has as the two words of which it is made: `logfile` is `log file`.
function divided(word) {
  const known = (one) => postings.has(stem(one));
  if (known(word) || synonyms.has(stem(word))) return [word];
  for (let at = 3; at < word.length - 2; at++) {
    const halves = [word.slice(0, at), word.slice(at)];
    if (halves.every(known) && variants(stem(word), false).size === 1) return halves;
  }
  return [word];
}

// The parts of a question without its identifiers.
function spoken(question) {
  const list = words(question).flatMap(divided), open = !/[\s?.]$/.test(question), result = [];
  const meant = list.filter((one) => !ASKED.has(one)).length ? (one) => !ASKED.has(one) : () => true;
  for (let at = 0; at < list.length; ) {
    let size = Math.min(longest, list.length - at);
    while (size > 1 && !phrases.has(list.slice(at, at + size).map(stem).join(" "))) size--;
    const taken = list.slice(at, at + size), name = taken.map(stem).join(" ");
    const weight = taken.every((one) => WEAK.has(one) || ASKED.has(one) || SIZE.test(one)) ? FAINT : 1;
    at += size;
    if (size > 1) {
      const found = variants(name, false);
      for (const one of taken.filter(meant)) if (!found.has(stem(one))) found.set(stem(one), PART);
      result.push({ shown: taken.join(" "), found, weight });
    } else if (meant(name) && meant(taken[0])) {
      result.push({ shown: taken[0], found: variants(name, open && at === list.length), weight });
    }
  }
  return result;
}

// The share of a section's title that the question has: "what is a bundle" is that title, and "verify" is not in it.
function covered(names, title) {
  return title.size ? [...title].filter((one) => names.has(one)).length / title.size : 0;
}

// Scores of sections by their number: BM25F of the parts, times the share of the question that a section has, more if
// the question has the section's title. How rare a part is: between how few sections have any of its variants, and how
// few have the variants that this section has. A section that has only words of a phrase gets LESS.
function scores(question, said) {
  const total = new Map(), share = new Map();
  let all = 0;
  for (const part of question) {
    const { found, weight: importance = 1 } = part;
    const weights = new Map(), inverse = new Map(), whole = new Set();
    for (const [term, weight] of found) {
      const has = postings.get(term) || new Map();
      const idf = rarity(has.size);
      for (const [at, count] of has) {
        weights.set(at, (weights.get(at) || 0) + weight * count);
        inverse.set(at, (inverse.get(at) || 0) + weight * count * idf);
        if (weight > Math.max(PART, INNER)) whole.add(at);
      }
    }
    const union = whole.size || weights.size;
    const idf = importance * rarity(union);
    part.idf = idf;
    all += idf;
    for (const [at, weight] of weights) {
      const factor = whole.has(at) ? 1 : LESS, mean = importance * inverse.get(at) / weight;
      const own = Math.min(MOST * idf, MIX * mean + (1 - MIX) * idf);
      total.set(at, (total.get(at) || 0) + factor * own * weight / (SATURATION + weight));
      share.set(at, (share.get(at) || 0) + factor * idf);
    }
  }
  const { best: like, sum } = resembling(question, all);
  const names = new Set(question.flatMap(({ found }) => [...found.keys()].flatMap((term) => term.split(" "))));
  for (const [at, score] of total) {
    const { boost, title } = sections[at], close = like.get(at) || 0;
    const more = (1 + HEADING * covered(names, title)) * (1 + LIKE * close);
    total.set(at, score * (share.get(at) / all) ** COVERAGE * Math.max(boost, boost ** (1 - close)) * more);
  }
  if (question.length === 1 && CODE.test(question[0].shown))
    for (const at of total.keys()) if (sections[at].title.has(question[0].shown)) total.set(at, total.get(at) * 100);
  const pairs = paired(said), longer = Math.log(question.length);
  for (const [at, score] of [...total].sort((a, b) => b[1] - a[1]).slice(0, BEST))
    total.set(at, score * Math.exp(refined(at, question, all, names, pairs) + ALIKE * (sum.get(at) || 0) +
      RESEMBLES * longer * (like.get(at) || 0)));
  return total;
}

// The neighbouring words of a text that are not stop words, as pairs of stems.
function paired(text) {
  const list = words(text).filter((one) => !ASKED.has(one)).map(stem);
  return new Set(list.slice(1).map((one, at) => `${list[at]} ${one}`));
}

// The logarithm of the factor of one of the best sections. scores() adds up how often the parts of a question occur; this
// is how much of the question the section has in each field, how much of the question's neighbours are neighbours in its
// text, and how much of its title the question has.
function refined(at, question, all, names, pairs) {
  const section = sections[at], [title, text, called, asks] = section.fields.map(([field]) => field);
  const share = { words: 0, known: 0, said: 0, called: 0 };
  for (const { found, idf } of question) {
    const weight = (field) => Math.max(0, ...[...found].map(([term, weight]) => (field.has(term) ? weight : 0)));
    const inText = weight(text), inNames = weight(called), known = Math.max(weight(title), inNames, weight(asks));
    share.words += Math.max(inText, known) * idf / all;
    share.known += known * idf / all;
    share.said += inText * idf / all;
    share.called += inNames * idf / all;
  }
  const rare = (list) => list.reduce((sum, one) => sum + rarity((postings.get(one) || new Map()).size), 0);
  const whole = rare([...section.title]), part = rare([...section.title].filter((one) => names.has(one)));
  section.pairs = section.pairs || paired(section.doc.text);
  const near = [...pairs].filter((one) => section.pairs.has(one)).length / (pairs.size || 1);
  return WORDS * share.words + (KNOWN + KNOWS * Math.log(question.length)) * share.known +
    SAID * share.said + CALLED * share.called + PAIRS * near +
    (whole ? TITLED * part * (part / whole) ** 2 : 0) + ASKS * Math.log(1 + (section.doc.asked || []).length);
}

// Groups of sections by page, as the theme shows them: the best page first, and its best section first.
function arranged(question, marked) {
  const pages = new Map(), ranked = [...scores(parts(question), question)].sort((a, b) => b[1] - a[1]);
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
    for (const one of [...found.keys()].flatMap((term) => term.split(/[ _]/)))
      if (!ASKED.has(one)) beginnings.add(one.replace(/i$/, ""));
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
  } else if (message.type === QUERY) question = typed(message.data);
  own = true;
  try {
    theme(message.type === QUERY ? { ...message, data: searched(question) } : message);
  } finally {
    own = false;
  }
});

importScripts(THEME);
