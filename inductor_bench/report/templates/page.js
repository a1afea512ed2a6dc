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
    if (table.classList.contains("marked")) { showAll(table); } // sorted, its rows are no tree any more
    const parent = groups.length ? groups[0][2].parentNode : null;
    const end = parent === table ? table.tFoot : null;
    groups.forEach(([, , group]) => parent.insertBefore(group, end));
  }
  all("table").forEach((table) => all("thead button", table).forEach((button) => {
    button.addEventListener("click", () => sort(table, button.closest("th").cellIndex));
  }));

  // Filters: a row stays where its text, or that of its details, has all the words.
  all("input.filter").forEach((input) => {
    const table = document.getElementById(input.dataset.table), count = all(`[data-count=${input.dataset.table}]`)[0];
    let groups = null;
    input.addEventListener("input", () => {
      const bodies = Array.from(table.tBodies);
      groups = groups || (bodies.length > 1 ? bodies : Array.from(bodies[0].rows)).map((group) => [group, group.textContent.toLowerCase()]);
      table.classList.toggle("few", Boolean(table.dataset.rows) && !input.value && !table.dataset.all);
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

  // Long tables: the first rows, until all are asked for.
  function showAll(table) {
    table.dataset.all = "yes";
    table.classList.remove("few");
    const more = document.querySelector(`button.all[data-table=${table.id}]`);
    if (more) { more.remove(); }
  }
  all("table[data-rows]").forEach((table) => {
    const more = button("all", `Show all ${Number(table.dataset.rows).toLocaleString("en")} rows`);
    more.dataset.table = table.id;
    more.addEventListener("click", () => showAll(table));
    table.classList.add("few");
    table.parentNode.after(more);
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
    reach();
  }
  function button(name, text) {
    const made = document.createElement("button");
    made.className = name;
    made.textContent = text;
    return made;
  }
  function makeFile(box) {
    if (box.querySelector("pre")) { return; }
    const whole = button("whole", "Show the whole file");
    whole.setAttribute("aria-expanded", "false");
    whole.addEventListener("click", () => {
      const wanted = whole.getAttribute("aria-expanded") !== "true";
      whole.setAttribute("aria-expanded", String(wanted));
      whole.textContent = wanted ? "Show the kernel alone" : "Show the whole file";
      showFile(box);
    });
    box.append(" ", button("copy", "Copy the file"), " ", whole, document.createElement("pre"));
    showFile(box);
  }

  // Details of rows.
  function open(button, wanted) {
    const details = button.closest("tr").nextElementSibling.querySelector("div");
    button.setAttribute("aria-expanded", String(wanted));
    if (wanted) {
      details.removeAttribute("hidden");
      reach();
      all(".code[data-file]", details).forEach(makeFile);
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
    if (button) {
      row.closest("tbody").hidden = false;
      if (!row.offsetParent && row.closest("table.few")) { showAll(row.closest("table")); }
      open(button, true);
      row.scrollIntoView();
    }
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash) { openTarget(); }
  });
  window.addEventListener("hashchange", openTarget);
  openTarget();

  // Timelines and flame graphs: buttons, keys and Ctrl with the wheel zoom, and what the pointer is on is said above.
  const MOST_ZOOM = 2000;
  function seconds(value) {
    const [unit, size] = value >= 1 ? ["s", 1] : value >= 1e-4 ? ["ms", 1e3] : ["µs", 1e6];
    return `${Number((value * size).toPrecision(3))} ${unit}`;
  }
  function makeZoom(box) {
    const scroller = box.querySelector(".scroller"), inner = scroller.firstElementChild;
    const tools = document.createElement("div"), said = document.createElement("output");
    const lane = () => inner.querySelector(".lane:not([hidden])").getBoundingClientRect();
    let zoom = 1;
    said.setAttribute("aria-live", "polite");
    tools.className = "tools";
    function zoomTo(wanted, share, at) { // keeps the place at `share` of the axis at `at` pixels of the view
      zoom = Math.min(Math.max(wanted, 1), MOST_ZOOM);
      inner.style.width = `${100 * zoom}%`;
      const before = lane().left - scroller.getBoundingClientRect().left + scroller.scrollLeft;
      scroller.scrollLeft = before + share * lane().width - at;
      draw();
    }
    function around(factor, x) {
      const view = scroller.getBoundingClientRect(), at = (x === undefined ? view.width / 2 : x - view.left);
      zoomTo(zoom * factor, (view.left + at - lane().left) / lane().width, at);
    }
    [["+", "Zoom in", () => around(2)], ["−", "Zoom out", () => around(0.5)], ["Fit", "Show the whole", () => zoomTo(1, 0, 0)]].forEach(([text, name, act]) => {
      const zoomer = button("", text);
      zoomer.setAttribute("aria-label", `${name}: ${box.dataset.title}`);
      zoomer.addEventListener("click", act);
      tools.append(zoomer);
    });
    tools.append(said);
    box.prepend(tools);
    scroller.tabIndex = 0;
    scroller.setAttribute("role", "group");
    scroller.setAttribute("aria-label", `${box.dataset.title}; + and − zoom, 0 shows the whole`);
    scroller.addEventListener("keydown", (event) => {
      const act = { "+": () => around(2), "=": () => around(2), "-": () => around(0.5), 0: () => zoomTo(1, 0, 0) }[event.key];
      if (act && !event.ctrlKey && !event.metaKey) { act(); event.preventDefault(); }
    });
    scroller.addEventListener("wheel", (event) => {
      if (event.ctrlKey) { around(event.deltaY < 0 ? 1.25 : 0.8, event.clientX); event.preventDefault(); }
    }, { passive: false });
    scroller.addEventListener("pointerover", (event) => { if (event.target.title) { said.textContent = event.target.title; } });
    scroller.addEventListener("dblclick", (event) => {
      const found = event.target.closest(".lane span");
      if (!found) { return; }
      const place = found.getBoundingClientRect(), whole = lane(), share = place.width / whole.width;
      zoomTo(0.9 / share, (place.left - whole.left) / whole.width - 0.05 * share, 0);
    });
    const lanes = all(".lane.marked", box).map((element) => makeMarks(element, said));
    function draw() { lanes.forEach((one) => one.draw(scroller)); label(); }
    function label() { // names what has become wide enough
      if (zoom > 1) { all(".lane span:empty", box).forEach((one) => { if (one.offsetWidth > 60) { one.textContent = one.title; one.className = "cut"; } }); }
    }
    scroller.addEventListener("scroll", () => requestAnimationFrame(() => lanes.forEach((one) => one.draw(scroller))));
    window.addEventListener("resize", draw);
    draw();
  }
  function makeMarks(lane, said) {
    const marks = JSON.parse(lane.querySelector("script").textContent), whole = Number(lane.dataset.span);
    const calls = marks.flatMap((mark) => mark[3].map(([begin, length]) => ({ mark, begin, length }))).sort((a, b) => a.begin - b.begin);
    let now = -1;
    lane.hidden = lane.previousElementSibling.hidden = false;
    lane.tabIndex = 0;
    lane.setAttribute("role", "application");
    lane.setAttribute("aria-label", `${calls.length} calls of kernels: arrow keys go from one to the next, Enter opens its row`);
    const words = ({ mark, length }) => `${mark[0]} ${seconds(length * whole)}`;
    function draw(scroller) {
      const view = scroller.getBoundingClientRect(), place = lane.getBoundingClientRect();
      const first = (view.left - place.left) / place.width, last = (view.right - place.left) / place.width, pixel = 1 / place.width;
      const shown = [];
      let painted = -1;
      calls.forEach((call, number) => {
        const { mark, begin, length } = call, end = begin + Math.max(length, pixel);
        if (end < first || begin > last || (end <= painted && number !== now)) { return; }
        painted = end;
        const one = document.createElement(mark[1] ? "a" : "i");
        if (mark[1]) { one.href = `#${mark[1]}`; one.tabIndex = -1; }
        one.style.cssText = `left:${100 * begin}%;width:${100 * length}%;background:${mark[2]};color:${mark[4]}`;
        one.title = words(call);
        if (length / pixel > 40) { one.textContent = mark[0]; }
        if (number === now) { one.className = "now"; }
        shown.push(one);
      });
      lane.replaceChildren(...shown);
    }
    lane.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], scroller = lane.closest(".scroller");
      if (step) {
        now = Math.min(Math.max(now + step, 0), calls.length - 1);
        const { begin, length } = calls[now], place = lane.getBoundingClientRect(), view = scroller.getBoundingClientRect();
        const at = place.left + (begin + length / 2) * place.width;
        if (at < view.left + 80 || at > view.right) { scroller.scrollLeft += at - view.left - view.width / 2; }
        said.textContent = `${words(calls[now])} (${now + 1} of ${calls.length})`;
        draw(scroller);
        event.preventDefault();
      } else if (event.key === "Enter" && now >= 0 && calls[now].mark[1]) {
        location.hash = calls[now].mark[1];
        openTarget();
      }
    });
    return { draw };
  }
  all(".zoomed").forEach(makeZoom);

  // What scrolls can be reached with the keyboard.
  function reach() {
    all(".wide, pre, .picture").forEach((box) => {
      if (box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1) { box.tabIndex = 0; }
    });
  }
  reach();
  window.addEventListener("resize", reach);
})();
