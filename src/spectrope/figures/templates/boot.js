// Draws every panel; pointing at an encoding, in a chart or in the key, brings it out in all of them.
// Tables are sorted by their headings, and long ones filtered; figures offer their data and their command.
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const places = document.querySelectorAll(".panel");
  const views = [];
  const emphasise = (name) => {
    for (const view of views) view.signal("emphasis", name).runAsync();
    for (const entry of document.querySelectorAll("[data-encoding]")) {
      entry.classList.toggle("faded", name !== "" && entry.dataset.encoding !== name);
    }
  };
  const encodingOf = (item) => (item && item.datum && item.datum.encoding) || "";
  const draw = async (spec, number) => {
    const options = { renderer: "svg", actions: false, ast: true };
    const { view } = await vegaEmbed(places[number], spec, options);
    view.addEventListener("mouseover", (_, item) => emphasise(encodingOf(item)));
    view.addEventListener("mouseout", () => emphasise(""));
    views.push(view);
  };
  for (const entry of document.querySelectorAll("[data-encoding]")) {
    const name = entry.dataset.encoding;
    entry.addEventListener("pointerenter", () => emphasise(name));
    entry.addEventListener("focus", () => emphasise(name));
    for (const end of ["pointerleave", "blur"]) entry.addEventListener(end, () => emphasise(""));
  }
  const button = (label, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = label;
    made.addEventListener("click", () => act(made));
    return made;
  };
  const rowsOf = (figure) => [...figure.querySelectorAll(".panel")].flatMap((panel) => {
    const spec = specs[[...places].indexOf(panel)];
    const own = spec.layer.map((layer) => layer.data).filter(Boolean);
    return [spec.data, ...own].flatMap((data) => data.values.map((row) => ({ panel: spec.description, ...row })));
  });
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const asCsv = (rows) => {
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(cell).join(",")).join("\n");
  };
  const save = (text, type, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const copy = (text, made) => navigator.clipboard.writeText(text).then(() => { made.textContent = "Copied"; });
  for (const tools of document.querySelectorAll(".tools")) {
    const rows = () => rowsOf(tools.parentElement);
    const { name, command } = tools.dataset;
    tools.append(
      button("Data as CSV", () => save(`${asCsv(rows())}\n`, "text/csv", `${name}.csv`)),
      button("Data as JSON", () => save(JSON.stringify(rows()), "application/json", `${name}.json`)),
    );
    if (command) tools.append(button("Copy command", (made) => copy(command, made)));
  }
  const number = (text) => parseFloat(text.replace("−", "-").replaceAll(",", ""));
  // Heads are named layer.head, so that 0.10 follows 0.9; what is no number comes last in both senses.
  const compare = (heading, sense) => (a, b) => {
    const whole = /\.head$|^(head|at)$/.test(heading) && [a, b].every((name) => /^\d+\.\d+$/.test(name));
    if (whole) {
      const [[i, j], [k, l]] = [a, b].map((name) => name.split(".").map(Number));
      return sense * (i - k || j - l);
    }
    const [x, y] = [number(a), number(b)];
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return sense * (Number.isNaN(x) ? a.localeCompare(b) : x - y);
  };
  const text = (row, column) => row.cells[column].textContent.trim();
  const sort = (table, column, head) => {
    const sense = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sense > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const order = compare(head.textContent.trim(), sense);
    body.append(...[...body.rows].sort((a, b) => order(text(a, column), text(b, column))));
  };
  for (const table of document.querySelectorAll(".scroll table")) {
    const rows = table.tBodies[0].rows;
    if (rows.length < 2 || table.querySelector("[rowspan]")) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const made = button(head.textContent, () => sort(table, column, head));
      head.replaceChildren(made);
    });
    if (rows.length < 8) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = `Filter ${rows.length} rows`;
    field.setAttribute("aria-label", field.placeholder);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(field);
  }
  Promise.all(specs.map(draw)).then(() => document.documentElement.setAttribute("data-drawn", views.length));
})();
