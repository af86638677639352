// Runs beside report pages in frames, in a headless browser: what is where on them, how it looks.

const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const known = {};
function rgba(colour) {
  if (!(colour in known)) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    known[colour] = [...pen.getImageData(0, 0, 1, 1).data];
  }
  return known[colour];
}
function luminance(colour) {
  const [r, g, b] = colour.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
function behind(element, view) {
  for (; element; element = element.parentElement) {
    const colour = rgba(view.getComputedStyle(element).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255, 255];
}
function texts(page, view) {
  const found = [], walk = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || !element.checkVisibility() || element.closest('.unseen')) continue;
    const range = page.createRange();
    range.selectNodeContents(walk.currentNode);
    for (const box of range.getClientRects()) {
      if (box.width > 0) found.push({text: text.slice(0, 60), element, box});
    }
  }
  return found;
}
function overlapping(boxes) {
  const found = [], sorted = [...boxes].sort((a, b) => a.box.top - b.box.top);
  sorted.forEach((one, i) => {
    for (let j = i + 1; j < sorted.length && sorted[j].box.top < one.box.bottom - 3; j++) {
      const other = sorted[j].box;
      if (other.left < one.box.right - 2 && one.box.left < other.right - 2)
        found.push(one.text + ' | ' + sorted[j].text);
    }
  });
  return found;
}
function look(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, all = texts(page, view);
  const isPicture = item => item.element instanceof view.SVGElement;
  const scrolls = item => item.element.closest('pre, nav');  // their hidden part is not outside
  const contrasts = all.filter(item => !isPicture(item)).map(item => [
    contrast(rgba(view.getComputedStyle(item.element).color), behind(item.element, view)), item.text]);
  const place = name => page.querySelector(name)?.getBoundingClientRect().toJSON();
  const ids = [...page.querySelectorAll('[id]')].map(element => element.id);
  return {
    page: frame.dataset.page, width: view.innerWidth, texts: all.length,
    scroll: page.documentElement.scrollWidth,
    resources: view.performance.getEntriesByType('resource').length,
    background: luminance(behind(page.body, view)),
    outside: all.filter(item => item.box.left < -0.5 || item.box.right > view.innerWidth + 0.5)
      .map(item => item.text),
    overlapping: overlapping(all.filter(item => !isPicture(item) && !scrolls(item))),
    faintest: contrasts.sort((a, b) => a[0] - b[0])[0],
    places: {header: place('header'), next: place('.card.next'), nav: place('nav'), main: place('main')},
    ids, dead: [...page.querySelectorAll('a[href^="#"]')].map(link => link.hash.slice(1))
      .filter(id => !ids.includes(decodeURIComponent(id))),
  };
}
addEventListener('load', () => {
  const seen = [];
  for (const frame of document.querySelectorAll('iframe')) {
    seen.push({folded: true, ...look(frame)});
    frame.contentDocument.querySelectorAll('details').forEach(fold => fold.open = true);
    seen.push({folded: false, ...look(frame)});
  }
  document.body.textContent = JSON.stringify(seen);
});
