// How-to pages come before the pages of single claims, which mention almost everything.
var Scorer = {
  score: ([docname, , , , score]) =>
    docname.startsWith("how-to/") ? score + 20 : docname.startsWith("explanation/replication") ? score - 20 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
