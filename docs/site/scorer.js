/* Ranks the results of the site's search. Sphinx counts a word once per page, so that long pages match most searches:
 * pages that answer questions come before pages of figures and reference. */
var Scorer = {
  score: (result) => {
    const [page, , , , score] = result;
    const lowered = { accuracy: 8, "local-service": 6, api: 4, snapshots: 3, columns: 2, reliability: 1 };
    return score - (lowered[page] ?? 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
