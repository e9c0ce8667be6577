"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const drawn = new Set();
  let plotting;

  // Figures: drawn when they come near, from an address of their own.

  function plotly() {
    plotting ??= load();
    return plotting;
  }

  async function load() {
    const templates = await (await fetch("/static/templates.json")).json();
    for (const id of templates.injected) {
      // Stands where plotly would put a style element, which the content security policy refuses.
      document.head.append(Object.assign(document.createElement("meta"), { id }));
    }
    await new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = "/static/plotly.js";
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    });
    return templates;
  }

  async function draw(div) {
    const figure = div.closest("figure");
    const wanted = div.dataset.src;
    div.dataset.drawing = wanted;
    if (!drawn.has(div)) div.classList.add("wait");
    try {
      const answer = await fetch(wanted);
      if (div.dataset.drawing !== wanted || !div.isConnected) return;
      figure.hidden = answer.status === 204;
      if (answer.status === 204) return;
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const made = await answer.json();
      const templates = await plotly();
      figure.querySelector("h2, h3").textContent = made.title;
      figure.querySelector("p").textContent = made.caption;
      div.setAttribute("aria-label", `${made.title}. ${made.caption}`);
      div.made = made;
      drawn.add(div);
      div.classList.remove("wait");
      await show(div, templates);
    } catch (error) {
      figure.querySelector("p").textContent = "This figure could not be drawn now.";
    } finally {
      div.classList.remove("wait");
    }
  }

  function show(div, templates) {
    const template = templates[dark.matches ? "dark" : "light"];
    const layout = { ...fitted(div.made, div.clientWidth), template };
    div.style.height = `${layout.height}px`;
    return Plotly.react(div, div.made.data, layout, config);
  }

  dark.addEventListener("change", async () => {
    const templates = await plotly();
    drawn.forEach((div) => div.isConnected && show(div, templates));
  });

  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        near.unobserve(entry.target);
        entry.target.dataset.seen = "yes";
        draw(entry.target);
      }
    }
  }, { rootMargin: "300px" });

  const observe = (root) => root.querySelectorAll(".plot").forEach((div) => near.observe(div));

  // Parts: what has changed on a page is taken from a fresh copy of it; focus and open details stay.

  function swap(fresh) {
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = fresh.getElementById(part.id);
      if (other && other.innerHTML !== (part.shown ?? part.innerHTML)) replace(part, other);
    }
    swapFigures(fresh);
    document.documentElement.dataset.refresh = fresh.documentElement.dataset.refresh;
    document.title = fresh.title;
  }

  function replace(part, other) {
    const focused = part.contains(document.activeElement) ? keyOf(document.activeElement) : null;
    const open = [...part.querySelectorAll("details")].map((entry) => entry.open);
    const scrolled = [...part.querySelectorAll(".scroll")].map((entry) => entry.scrollLeft);
    part.innerHTML = other.innerHTML;
    part.shown = other.innerHTML;
    part.querySelectorAll("details").forEach((entry, index) => { entry.open = entry.open || Boolean(open[index]); });
    part.querySelectorAll(".scroll").forEach((entry, index) => { entry.scrollLeft = scrolled[index] ?? 0; });
    if (focused) [...part.querySelectorAll("a, button, summary, pre, [tabindex]")].find((entry) => keyOf(entry) === focused)?.focus();
    observe(part);
  }

  const keyOf = (entry) => entry.id || entry.getAttribute("href") || entry.getAttribute("aria-label") || entry.textContent;

  function swapFigures(fresh) {
    for (const room of document.querySelectorAll("[data-figures]")) {
      const other = fresh.getElementById(room.id);
      if (!other) continue;
      const names = (where) => [...where.querySelectorAll("figure")].map((entry) => entry.dataset.name).join();
      if (names(room) !== names(other)) {
        room.innerHTML = other.innerHTML;
        observe(room);
        continue;
      }
      const freshPlots = [...other.querySelectorAll(".plot")];
      [...room.querySelectorAll(".plot")].forEach((div, index) => {
        const { src, version } = freshPlots[index].dataset;
        if (div.dataset.src === src && div.dataset.version === version) return;
        Object.assign(div.dataset, { src, version });
        if (div.dataset.seen) draw(div);
      });
    }
  }

  let asked = 0;
  async function reload(address) {
    const mine = ++asked;
    const results = document.getElementById("results");
    results?.classList.add("stale");
    try {
      const answer = await fetch(address, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine === asked) swap(fresh);
    } catch {
      // The dashboard was stopped or the network is gone: the page stays as it is, and is asked for again.
    } finally {
      if (mine === asked) results?.classList.remove("stale");
    }
  }

  function keepFresh() {
    const seconds = Number(document.documentElement.dataset.refresh);
    if (!seconds) return;
    setTimeout(async () => {
      if (!document.hidden) await reload(location.href);
      keepFresh();
    }, seconds * 1000);
  }

  // Filters: the address holds the state, so a view can be sent on.

  function addressOf(form) {
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) query.set(name, value);
    return `${form.getAttribute("action")}${query.size ? `?${query}` : ""}`;
  }

  function applied(form) {
    const address = addressOf(form);
    history.pushState(null, "", address);
    shown = address;
    return reload(address);
  }

  document.querySelectorAll("form[data-filters]").forEach((form) => {
    let typing;
    form.addEventListener("change", () => applied(form));
    form.addEventListener("input", (event) => {
      if (event.target.type !== "search") return;
      clearTimeout(typing);
      typing = setTimeout(() => applied(form), 250);
    });
    form.addEventListener("submit", (event) => { event.preventDefault(); applied(form); });
  });

  let shown = location.pathname + location.search;
  window.addEventListener("popstate", async () => {
    // Following a link inside the page is no change of what is shown.
    if (shown === location.pathname + location.search) return;
    shown = location.pathname + location.search;
    const query = new URLSearchParams(location.search);
    for (const entry of document.querySelectorAll("form[data-filters] :is(select, input)")) {
      entry.value = query.get(entry.name) ?? (entry.type === "hidden" ? entry.value : entry.options?.[0].value ?? "");
    }
    await reload(location.href);
  });

  // A live run.

  const live = document.querySelector("[data-live]");
  if (live) {
    const source = new EventSource(live.dataset.live);
    const panel = document.getElementById("panel");
    let waiting;
    source.addEventListener("panel", (event) => {
      const other = document.createElement("div");
      other.innerHTML = JSON.parse(event.data);
      const logs = new Map([...panel.querySelectorAll("pre.log")].map((log) => [keyOf(log), log]));
      replace(panel, other);
      panel.querySelectorAll("pre.log").forEach((log) => {
        const before = logs.get(keyOf(log));
        if (before?.following === false) { log.scrollTop = before.scrollTop; log.following = false; } else log.scrollTop = log.scrollHeight;
        log.addEventListener("scroll", () => { log.following = log.scrollTop + log.clientHeight > log.scrollHeight - 24; });
      });
    });
    source.addEventListener("measured", () => {
      const facts = panel.querySelector(".live-facts");
      document.getElementById("live-status").textContent = [...facts.querySelectorAll("div")].map((entry) => entry.innerText.replace("\n", " ")).join(", ");
      waiting ??= setTimeout(() => { waiting = undefined; reload(location.href); }, 1500);
    });
    source.addEventListener("ended", () => {
      source.close();
      location.reload();
    });
  }

  // Launch commands.

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(".copy");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      const selection = window.getSelection();
      selection.removeAllRanges();
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("pre"));
      selection.addRange(range);
      button.textContent = "Selected: press Ctrl-C";
    }
  });

  observe(document);
  keepFresh();
})();
