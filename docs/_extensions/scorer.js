// Order of the search's results: pages for readers go before those that record what was done.
// Scores of kinds are Sphinx's own.
var Scorer = {
  score: ([page, _title, anchor, _text, score]) => {
    if (/^(reliability\/|project\/(changelog|contributing|benchmarks|profiles)|explanation\/(catalogue|compared))/.test(page)) return score - 40;
    if (/^(howto|tutorial)\//.test(page)) return score + 10;
    if (/^reference\/(procedures|managers|settings)/.test(page)) return score + 6;
    if (/^reference\/api\//.test(page) && !anchor) return score - 4;
    return score;
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
