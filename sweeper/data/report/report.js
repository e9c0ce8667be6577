"use strict";
(() => {
  const templates = JSON.parse(document.getElementById("templates").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const drawn = new Set();

  // Paper is narrower than the window the figures were drawn for, and plotly learns of it too late.
  const PAPER_PX = 700;

  function draw(div, theme = dark.matches ? "dark" : "light", width = undefined) {
    const figure = JSON.parse(document.getElementById("data-" + div.dataset.figure).textContent);
    drawn.add(div);
    const layout = { ...fitted(figure, width ?? div.clientWidth), template: templates[theme], width };
    div.style.height = `${layout.height}px`;
    return Plotly.react(div, figure.data, layout, config);
  }

  const plots = [...document.querySelectorAll(".plot")];
  if (plots.length) {
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          seen.unobserve(entry.target);
          draw(entry.target);
        }
      }
    }, { rootMargin: "200px" });
    plots.forEach((div) => seen.observe(div));
    dark.addEventListener("change", () => drawn.forEach((div) => draw(div)));
    window.addEventListener("beforeprint", () => {
      plots.forEach((div) => draw(div, "light", PAPER_PX));
    });
    window.addEventListener("afterprint", () => drawn.forEach((div) => { draw(div); Plotly.Plots.resize(div); }));
  }

  // Paper cannot be clicked; afterwards the page is as it was.
  const unfolded = new Set();
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details:not([open])").forEach((entry) => {
      unfolded.add(entry);
      entry.open = true;
    });
  });
  window.addEventListener("afterprint", () => {
    unfolded.forEach((entry) => { entry.open = false; });
    unfolded.clear();
  });

  document.querySelectorAll(".copy").forEach((button) => {
    button.addEventListener("click", async () => {
      const command = button.dataset.copy;
      try {
        await navigator.clipboard.writeText(command);
        button.textContent = "Copied";
      } catch {
        // A file opened from disk may not touch the clipboard: select it for the reader instead.
        const range = document.createRange();
        range.selectNodeContents(button.parentElement.querySelector("pre"));
        const selection = window.getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        button.textContent = "Selected: press Ctrl-C";
      }
    });
  });
})();
