// What is wrong with the layout of a report, as lines of text: nothing clipped, nothing on top of another.
() => {
  const wrong = [];
  const slack = 1.5;
  const words = element => (element.textContent || "").trim().slice(0, 60);
  const where = element => (element.closest("article, header, nav") || document.body).id || element.tagName;
  const seen = element => element.checkVisibility() && element.getClientRects().length > 0;
  const across = document.documentElement;
  if (across.scrollWidth > across.clientWidth) {
    wrong.push(`the page is ${across.scrollWidth} wide in a window of ${across.clientWidth}`);
  }

  // Text of HTML must fit its box; a box that scrolls by itself is one that the reader can move.
  const scrolls = element => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  for (const element of document.querySelectorAll("body *")) {
    if (element instanceof SVGElement || !seen(element) || scrolls(element)) continue;
    if (getComputedStyle(element).display === "inline" || element.matches(".skip, .spoken")) continue;
    if (element.scrollWidth > element.clientWidth + slack && !element.querySelector("svg")) {
      wrong.push(`clipped in ${where(element)}: ${element.tagName} "${words(element)}"`);
    }
  }

  // Text of SVG must stay inside its picture, and inside its card.
  for (const text of document.querySelectorAll("svg text")) {
    if (!seen(text)) continue;
    const box = text.getBoundingClientRect();
    const outer = text.closest(".frame, svg.chart, .chart").getBoundingClientRect();
    if (box.left < outer.left - slack || box.right > outer.right + slack ||
        box.top < outer.top - slack || box.bottom > outer.bottom + slack) {
      wrong.push(`outside its picture in ${where(text)}: "${words(text)}"`);
    }
  }

  // Labels, values and ticks of one picture must not lie on each other.
  const lines = element => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return element instanceof SVGElement ? [element.getBoundingClientRect()] : [...range.getClientRects()];
  };
  const within = (a, b) => a.contains(b) || b.contains(a);
  const meet = (a, b) =>
    a.left < b.right - slack && b.left < a.right - slack && a.top < b.bottom - slack && b.top < a.bottom - slack;
  for (const picture of document.querySelectorAll(".chart, header")) {
    const labels = [...picture.querySelectorAll("text, .label, .values span, .legend li, p.scale, th, td, b, span")]
      .filter(each => seen(each) && words(each) !== "" && !(each.tagName === "SPAN" && each.querySelector("span, svg")));
    for (let i = 0; i < labels.length; i++) {
      for (let j = i + 1; j < labels.length; j++) {
        if (within(labels[i], labels[j])) continue;
        if (lines(labels[i]).some(a => lines(labels[j]).some(b => meet(a, b)))) {
          wrong.push(`overlap in ${where(picture)}: "${words(labels[i])}" and "${words(labels[j])}"`);
        }
      }
    }
  }

  // A name may lose its middle or its end, never its front.
  for (const element of document.querySelectorAll("article *")) {
    if (element.children.length === 0 && /^(…|\.\.\.)/.test(words(element)) && !element.closest("pre")) {
      wrong.push(`cut at the front in ${where(element)}: "${words(element)}"`);
    }
  }
  return wrong;
}
