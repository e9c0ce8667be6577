"use strict";
(() => {
  const templates = JSON.parse(document.getElementById("templates").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const drawn = new Set();

  function layoutOf(figure, theme) {
    return { ...figure.layout, template: templates[theme] };
  }

  function draw(div, theme = dark.matches ? "dark" : "light") {
    const figure = JSON.parse(document.getElementById("data-" + div.dataset.figure).textContent);
    drawn.add(div);
    return Plotly.react(div, figure.data, layoutOf(figure, theme), config);
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
      document.querySelectorAll("details").forEach((entry) => { entry.open = true; });
      plots.forEach((div) => { draw(div, "light"); Plotly.Plots.resize(div); });
    });
    window.addEventListener("afterprint", () => drawn.forEach((div) => draw(div)));
  }

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
