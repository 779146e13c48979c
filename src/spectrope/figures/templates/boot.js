// Draws every panel; pointing at an encoding, in a chart or in the key, brings it out in all of them.
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
  Promise.all(specs.map(draw)).then(() => document.documentElement.setAttribute("data-drawn", views.length));
})();
