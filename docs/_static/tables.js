// Tables of eight rows and more are sorted by a click on a heading, and filtered by what is typed above them.
(() => {
  const LEAST = 8;
  const text = (row, column) => (row.cells[column] ? row.cells[column].textContent.trim() : "");
  const number = (value) => (/^[-−+]?\d/.test(value) ? parseFloat(value.replace("−", "-").replaceAll(",", "")) : NaN);
  const compare = (a, b) => {
    const [x, y] = [number(a), number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  const sortable = (table, body) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const sense = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", sense > 0 ? "ascending" : "descending");
        const rows = [...body.rows].sort((a, b) => sense * compare(text(a, column), text(b, column)));
        body.append(...rows);
      });
    });
  };
  const filterable = (table, body) => {
    const field = document.createElement("input");
    field.type = "search";
    field.className = "filter";
    field.placeholder = `Filter ${body.rows.length} rows`;
    field.setAttribute("aria-label", field.placeholder);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    (table.closest(".pst-scrollable-table-container") || table).before(field);
  };
  const prepare = () => {
    for (const table of document.querySelectorAll("article table")) {
      const body = table.tBodies[0];
      if (!table.tHead || !body || body.rows.length < LEAST) continue;
      sortable(table, body);
      filterable(table, body);
    }
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", prepare);
  else prepare();
})();
