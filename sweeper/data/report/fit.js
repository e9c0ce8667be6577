"use strict";
// Figures are made for wide windows. On a narrow one, titles are broken over lines and a legend of many rows gets room.
function fitted(figure, width) {
  const layout = structuredClone(figure.layout);
  if (!width || width >= 560) return layout;

  function fold(text, most) {
    if (text.length <= most || text.includes("<")) return text;
    const lines = [""];
    for (const word of text.split(" ")) {
      const line = lines[lines.length - 1];
      if (line && line.length + 1 + word.length > most) lines.push(word);
      else lines[lines.length - 1] = line ? `${line} ${word}` : word;
    }
    return lines.join("<br>");
  }

  for (const [key, axis] of Object.entries(layout)) {
    if (!/^[xy]axis/.test(key) || !axis.title?.text) continue;
    axis.title = { ...axis.title, text: fold(axis.title.text, key[0] === "x" ? 36 : 20), font: { size: 12 } };
  }
  for (const note of layout.annotations ?? []) note.text = fold(note.text ?? "", 38);

  const names = figure.data.filter((trace) => trace.name && trace.showlegend !== false).map((trace) => trace.name);
  if (layout.showlegend === false || names.length < 2) return layout;
  const widest = Math.max(...names.map((name) => name.length)) * 7 + 50;
  const rows = Math.ceil(names.length / Math.max(1, Math.floor(width / widest)));
  layout.height += Math.max(0, rows - 2) * 20;
  layout.legend = { ...layout.legend, font: { size: 11 } };
  return layout;
}
