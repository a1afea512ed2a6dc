"use strict";
(() => {
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  // Tables: a click on a title sorts. A row and its details stay together.
  function sortKey(group, column) {
    const cell = (group.rows ? group.rows[0] : group).cells[column];
    if (cell.dataset.v !== undefined) { return Number(cell.dataset.v); }
    const own = Array.from(cell.childNodes).filter((node) => !(node.matches && node.matches(".note")));
    return own.map((node) => node.textContent).join("").trim().toLowerCase();
  }
  function compare(one, other) {
    if (typeof one !== typeof other) { return typeof one === "number" ? -1 : 1; }
    return one < other ? -1 : one > other ? 1 : 0;
  }
  function sort(table, column) {
    const heads = Array.from(table.tHead.rows[0].cells), head = heads[column];
    const bodies = Array.from(table.tBodies);
    const groups = (bodies.length > 1 ? bodies : Array.from(bodies[0].rows)).map((group, place) => [sortKey(group, column), place, group]);
    const before = head.getAttribute("aria-sort");
    const up = before ? before === "descending" : !head.classList.contains("r");
    const numbers = groups.some(([key]) => typeof key === "number");
    groups.sort(([one, first], [other, second]) => {
      const missing = numbers && (typeof one !== "number" || typeof other !== "number");
      return (missing || up ? compare(one, other) : compare(other, one)) || first - second;
    });
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const parent = groups.length ? groups[0][2].parentNode : null;
    const end = parent === table ? table.tFoot : null;
    groups.forEach(([, , group]) => parent.insertBefore(group, end));
  }
  all("table").forEach((table) => all("thead button", table).forEach((button, column) => {
    button.addEventListener("click", () => sort(table, column));
  }));

  // Filters: a row stays where its text, or that of its details, has all the words.
  all("input.filter").forEach((input) => {
    const table = document.getElementById(input.dataset.table), count = all(`[data-count=${input.dataset.table}]`)[0];
    let groups = null;
    input.addEventListener("input", () => {
      const bodies = Array.from(table.tBodies);
      groups = groups || (bodies.length > 1 ? bodies : Array.from(bodies[0].rows)).map((group) => [group, group.textContent.toLowerCase()]);
      const words = input.value.toLowerCase().split(/\s+/);
      let shown = 0;
      groups.forEach(([group, text]) => {
        const wanted = words.every((word) => text.includes(word));
        if (group.hidden === wanted) { group.hidden = !wanted; }
        shown += wanted;
      });
      count.textContent = input.value ? `${shown} of ${groups.length}` : "";
    });
  });

  // Files: unpacked when the first one is shown.
  let files = null;
  async function unpack() {
    const packed = document.getElementById("files").textContent;
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }
  async function fileOf(box) {
    files = files || unpack();
    const { blocks, files: table } = await files;
    const [indices, first, last] = table[box.dataset.file];
    const text = indices.map((index) => blocks[index]).join("\n\n");
    return { text, own: text.slice(first, last) };
  }
  async function showFile(box) {
    const pre = box.querySelector("pre"), whole = box.querySelector(".whole");
    try {
      const { text, own } = await fileOf(box);
      pre.textContent = whole.getAttribute("aria-expanded") === "true" ? text : own;
      whole.hidden = text === own;
    } catch (error) {
      pre.textContent = "This browser cannot unpack the file; it lies beside this page, in the RUN.";
    }
  }
  all(".code[data-file] .whole").forEach((button) => button.addEventListener("click", () => {
    const whole = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(whole));
    button.textContent = whole ? "Show the kernel alone" : "Show the whole file";
    showFile(button.closest(".code"));
  }));

  // Details of rows.
  function open(button, wanted) {
    const details = button.closest("tr").nextElementSibling.querySelector("div");
    button.setAttribute("aria-expanded", String(wanted));
    if (wanted) {
      details.removeAttribute("hidden");
      all(".code[data-file]", details).forEach((box) => { if (!box.querySelector("pre").textContent) { showFile(box); } });
    } else {
      details.setAttribute("hidden", "until-found");
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button && button.classList.contains("open")) { open(button, button.getAttribute("aria-expanded") !== "true"); }
    if (button && button.classList.contains("copy")) { copy(button); }
  });
  document.addEventListener("beforematch", (event) => {
    const row = event.target.closest("tr.more");
    if (row) { open(row.previousElementSibling.querySelector("button.open"), true); }
  }, true);

  // Copying.
  async function copy(button) {
    const box = button.closest(".code");
    const text = box.dataset.file ? (await fileOf(box)).text : box.querySelector("pre").textContent;
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (error) {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Not allowed";
      area.remove();
    }
    setTimeout(() => { button.textContent = words; }, 1500);
  }

  // A link to a row opens it.
  function openTarget() {
    const row = document.getElementById(location.hash.slice(1));
    const button = row && row.matches("tr.row") && row.querySelector("button.open");
    if (button) { row.closest("tbody").hidden = false; open(button, true); row.scrollIntoView(); }
  }
  window.addEventListener("hashchange", openTarget);
  openTarget();
})();
