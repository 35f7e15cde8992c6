/* Ranks the pages of the site for a search. Sphinx shows only pages that contain all words, and a page with a word
 * once counts as much as a page about it. People type "rate limit 429" and expect the page about errors. So each word
 * counts by the place where a page has it, and rare words count more. For example, "429" is a keyword of one page, and
 * "rate" is in the text of ten pages, so that the page with the keyword comes first. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

/* How much a word counts per place. The values were set with the questions of the tests. */
const PLACES = { keyword: 5, title: 5, heading: 4, text: 2, part: 1 };

/* A keyword, title or heading that is the search, or two of the words or more, counts this much per word. */
const PHRASE = 3;

/* Pages of one function, and notebooks, come after the page that describes the task. */
const LOWERED = [
  [/^generated\//, 0.4],
  [/^notebooks\//, 0.5],
];

/* A page with fewer points than this share of the best page is left out. */
const SMALLEST_SHARE = 0.3;

/** Split text into stems. Numbers and names such as top_k stay whole. */
const stemsOf = (text) => {
  const stemmer = new Stemmer();
  const words = text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  return words
    .filter((word) => !stopwords.has(word))
    .map((word) => stemmer.stemWord(word));
};

/** Return the numbers of the pages that the index lists for a stem. */
const pagesOf = (list, stem) => {
  const pages = Object.hasOwn(list, stem) ? list[stem] : [];
  return Array.isArray(pages) ? pages : [pages];
};

/** Return the pages whose text has a word that begins with a stem, for example "config" for "configure". */
const pagesWithPart = (terms, stem) => {
  if (stem.length < 4) return [];
  const longer = Object.keys(terms).filter((term) => term.startsWith(stem));
  return longer.flatMap((term) => pagesOf(terms, term));
};

/** Collect all phrases of the index: keywords and headings, each with stems, page and anchor. */
const phrasesOf = (index) => {
  const phrases = [];
  for (const [entry, places] of Object.entries(index.indexentries))
    for (const [page] of places)
      phrases.push({ place: "keyword", text: entry.toLowerCase(), stems: stemsOf(entry), page });
  for (const [title, places] of Object.entries(index.alltitles))
    for (const [page, anchor] of places)
      phrases.push({
        place: index.titles[page] === title ? "title" : "heading",
        text: title.toLowerCase(),
        stems: stemsOf(title),
        page,
        title,
        anchor: anchor ? `#${anchor}` : "",
      });
  return phrases;
};

/** Return how many different words each page has: a long page has most words, so a word says less about it. */
const lengthsOf = (index) => {
  const lengths = new Array(index.docnames.length).fill(0);
  for (const term of Object.keys(index.terms))
    for (const page of pagesOf(index.terms, term)) lengths[page] += 1;
  return lengths;
};

/** Return the points of each page for each stem of the search: those of the best place. */
const pointsOf = (index, stems, phrases) => {
  const lengths = lengthsOf(index);
  const usual = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
  return stems.map((stem) => {
    const points = new Map();
    const add = (page, value) => points.set(page, Math.max(value, points.get(page) ?? 0));
    const damped = (page, value) => value / (0.5 + (0.5 * lengths[page]) / usual);
    pagesWithPart(index.terms, stem).forEach((page) => add(page, damped(page, PLACES.part)));
    pagesOf(index.terms, stem).forEach((page) => add(page, damped(page, PLACES.text)));
    phrases
      .filter((phrase) => phrase.stems.includes(stem))
      .forEach((phrase) => add(phrase.page, PLACES[phrase.place]));
    return points;
  });
};

/** Return how many words a phrase and the search have in common, if the phrase consists of words of the search. */
const coveredBy = (stems, phrase, query) => {
  if (phrase.text === query.trim().toLowerCase()) return phrase.stems.length + 1;
  const isPart = phrase.stems.length > 1 && phrase.stems.every((stem) => stems.includes(stem));
  return isPart ? phrase.stems.length : 0;
};

/** Return the heading of a page that has most words of the search, if it has two or all of them. */
const bestHeading = (stems, phrases, page) => {
  const common = (phrase) => stems.filter((stem) => phrase.stems.includes(stem)).length;
  const headings = phrases.filter((phrase) => phrase.page === page && phrase.place === "heading");
  headings.sort((one, other) => common(other) - common(one));
  const enough = Math.min(2, stems.length);
  return headings.length && common(headings[0]) >= enough ? headings[0] : undefined;
};

/** Return the results for a search, the best last, as Sphinx takes them. */
const rankPages = (index, query) => {
  const stems = [...new Set(stemsOf(query))];
  const phrases = phrasesOf(index);
  const points = pointsOf(index, stems, phrases);
  const scores = new Map();
  const add = (page, value) => scores.set(page, value + (scores.get(page) ?? 0));
  points.forEach((ofStem) => {
    const rarity = Math.log(1 + index.docnames.length / (ofStem.size || 1));
    ofStem.forEach((value, page) => add(page, value * rarity));
  });
  phrases.forEach((phrase) => add(phrase.page, PHRASE * coveredBy(stems, phrase, query)));
  for (const [page, score] of scores) {
    const lowered = LOWERED.find(([pattern]) => pattern.test(index.docnames[page]));
    if (lowered) scores.set(page, score * lowered[1]);
  }
  const best = Math.max(...scores.values());
  return [...scores]
    .filter(([, score]) => score > 0 && score >= SMALLEST_SHARE * best)
    .sort((one, other) => one[1] - other[1])
    .map(([page, score]) => {
      const heading = bestHeading(stems, phrases, page);
      return [
        index.docnames[page],
        heading ? `${index.titles[page]} > ${heading.title}` : index.titles[page],
        heading?.anchor ?? "",
        null,
        score,
        index.filenames[page],
        SearchResultKind.text,
      ];
    });
};

if (typeof Search !== "undefined") {
  Search._performSearch = (query, _terms, _excluded, _highlighted, objectTerms) => {
    _removeChildren(document.getElementById("search-progress"));
    const names = [...objectTerms].flatMap((term) => Search.performObjectSearch(term, objectTerms));
    const isName = (name) => name[1].split(".").pop().toLowerCase() === query.trim().toLowerCase();
    return [...names.filter((name) => !isName(name)), ...rankPages(Search._index, query), ...names.filter(isName)];
  };
}
