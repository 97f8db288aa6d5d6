
for (const head of document.querySelectorAll("th")) {
  head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending", column = head.cellIndex;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const value = (row) => {
      const stored = row.cells[column].dataset.value;
      return stored === undefined ? row.cells[column].textContent : stored === "" ? NaN : Number(stored);
    };
    const order = (a, b) => {
      const x = value(a), y = value(b);
      if (typeof x === "string") return (up ? 1 : -1) * x.localeCompare(y);
      if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
      return up ? x - y : y - x;
    };
    body.append(...[...body.rows].sort(order));
  });
}
