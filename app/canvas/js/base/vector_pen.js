// A drawing context that writes SVG. It has the interface of a canvas context, so that the same functions draw on both.

const ILLEGAL = /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu; // characters that XML does not allow
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const ANCHORS = { left: "start", center: "middle", right: "end" };

/** Escape a text for elements and attributes. */
export const escaped = (text) =>
  String(text)
    .replace(ILLEGAL, "\uFFFD")
    .replace(/[&<>"']/g, (letter) => ENTITIES[letter]);

const near = (n) => String(Math.round(n * 100) / 100);

/** The part of CanvasRenderingContext2D that the drawings use. A real context measures the texts. */
export class VectorPen {
  constructor() {
    this.real = document.createElement("canvas").getContext("2d");
    this.written = [];
    this.path = [];
    this.dash = [];
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, font: "11px sans-serif" });
    Object.assign(this, { textAlign: "left", textBaseline: "middle" });
  }

  /** Return a colour as SVG attributes: six hexadecimal digits, and the opacity. */
  paint(name, colour) {
    this.real.fillStyle = "#000";
    this.real.fillStyle = colour;
    const parsed = this.real.fillStyle, parts = parsed.match(/[\d.]+/g);
    if (parsed.startsWith("#")) return ` ${name}="${parsed}"`;
    return ` ${name}="rgb(${parts.slice(0, 3).join()})" ${name}-opacity="${parts[3]}"`;
  }

  beginPath() {
    this.path = [];
  }

  step(letter, ...numbers) {
    this.path.push(letter + numbers.map(near).join(" "));
  }

  moveTo(x, y) {
    this.step("M", x, y);
  }

  lineTo(x, y) {
    this.step("L", x, y);
  }

  quadraticCurveTo(...numbers) {
    this.step("Q", ...numbers);
  }

  closePath() {
    this.step("Z");
  }

  roundRect(x, y, w, h, round) {
    const r = Math.min(round, w / 2, h / 2);
    this.step("M", x + r, y);
    for (const [dx, dy, long] of [[1, 0, w], [0, 1, h], [-1, 0, w], [0, -1, h]]) {
      this.path.push(`l${near(dx * (long - 2 * r))} ${near(dy * (long - 2 * r))}`);
      this.path.push(`q${near(dx * r)} ${near(dy * r)} ${near((dx - dy) * r)} ${near((dy + dx) * r)}`);
    }
    this.step("Z");
  }

  fill() {
    this.written.push(`<path d="${this.path.join("")}"${this.paint("fill", this.fillStyle)}/>`);
  }

  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    const line = `${this.paint("stroke", this.strokeStyle)} stroke-width="${near(this.lineWidth)}"${dash}`;
    this.written.push(`<path d="${this.path.join("")}" fill="none"${line}/>`);
  }

  fillRect(x, y, w, h) {
    const place = `x="${near(x)}" y="${near(y)}" width="${near(w)}" height="${near(h)}"`;
    this.written.push(`<rect ${place}${this.paint("fill", this.fillStyle)}/>`);
  }

  fillText(text, x, y) {
    const parts = /^(?:(\d+) )?([\d.]+)px (.*)$/s.exec(this.font);
    const [, weight, size, family] = parts ?? [null, null, "11", "sans-serif"];
    const look = `font-family="${escaped(family)}" font-size="${size}"${weight ? ` font-weight="${weight}"` : ""}`;
    // The baseline is shifted by numbers, because not every SVG reader supports dominant-baseline.
    const place = `x="${near(x)}" y="${near(y + 0.35 * size)}" text-anchor="${ANCHORS[this.textAlign]}"`;
    this.written.push(`<text ${place} ${look}${this.paint("fill", this.fillStyle)}>${escaped(text)}</text>`);
  }

  measureText(text) {
    this.real.font = this.font;
    return this.real.measureText(text);
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  /** Return the document: the part [x, y, w, h] of the drawing, `size` in pixels, on a background. */
  document([x, y, w, h], [width, height], ground, title) {
    const head = `xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"`;
    const box = `viewBox="${[x, y, w, h].map(near).join(" ")}" role="img"`;
    const place = `x="${near(x)}" y="${near(y)}" width="${near(w)}" height="${near(h)}"`;
    const under = `<rect ${place}${this.paint("fill", ground)}/>`;
    return `<svg ${head} ${box}><title>${escaped(title)}</title>${under}\n${this.written.join("\n")}\n</svg>\n`;
  }
}
