// Conversion between data and pixels, so that most of the drawing is independent of the direction of the axes.
//
// `t` is a step; `v`, or level, is the other coordinate: a byte, a slot or a line. There are three orientations:
//
//   upright   steps run right, v runs up      (the arena map, the slots, the curve of live bytes)
//   falling   steps run right, v runs down    (lifetimes: a line per tensor, from top to bottom)
//   sideways  steps run down,  v runs right   (any drawing with swapped axes)
//
// A rectangle of pixels is {x, y, w, h}; a window of data is {t0, t1, v0, v1}; a box in pixels is [x0, y0, x1, y1].

export class Plane {
  constructor(rect, win, { sideways = false, falling = false } = {}) {
    Object.assign(this, { rect, win, sideways, falling });
    this.vSign = sideways || falling ? 1 : -1; // 1: a greater v has a greater pixel coordinate
    [this.stepAxisPixels, this.levelAxisPixels] = this.swappedIfSideways(rect.w, rect.h);
    this.pixelsPerStep = this.stepAxisPixels / (win.t1 - win.t0);
    this.pixelsPerLevel = this.levelAxisPixels / (win.v1 - win.v0);
  }

  /** Convert a pair between the orders (step, v) and (x, y). */
  swappedIfSideways(first, second) {
    return this.sideways ? [second, first] : [first, second];
  }

  step(t) {
    return (this.sideways ? this.rect.y : this.rect.x) + (t - this.win.t0) * this.pixelsPerStep;
  }

  level(v) {
    const distance = (v - this.win.v0) * this.pixelsPerLevel;
    if (this.sideways) return this.rect.x + distance;
    return this.vSign > 0 ? this.rect.y + distance : this.rect.y + this.rect.h - distance;
  }

  point(t, v) {
    return this.swappedIfSideways(this.step(t), this.level(v));
  }

  box(t0, t1, v0, v1) {
    const [x0, y0] = this.point(t0, v0), [x1, y1] = this.point(t1, v1);
    return [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
  }

  /** Return the visible part of a box; its width or height is at most 0 if the box is not visible. */
  visibleBox(t0, t1, v0, v1) {
    const [x0, y0, x1, y1] = this.box(t0, t1, v0, v1), { x, y, w, h } = this.rect;
    return [Math.max(x0, x), Math.max(y0, y), Math.min(x1, x + w), Math.min(y1, y + h)];
  }

  levelLine(v, t0, t1) {
    const px = sharp(this.level(v));
    return [...this.swappedIfSideways(this.step(t0), px), ...this.swappedIfSideways(this.step(t1), px)];
  }

  /** Return the ends of a line across the rectangle. `px`: pixel on the step axis; with `isLevel`, on the v axis. */
  across(px, isLevel = false) {
    const { x, y, w, h } = this.rect;
    return this.sideways === isLevel ? [px, y, px, y + h] : [x, px, x + w, px];
  }

  /** Return the step and v at a pixel, as {t, v}. */
  at(x, y) {
    const { rect, win } = this, [dSteps, dLevels] = this.swappedIfSideways(x - rect.x, y - rect.y);
    const distance = this.vSign > 0 ? dLevels : this.levelAxisPixels - dLevels;
    return { t: win.t0 + dSteps / this.pixelsPerStep, v: win.v0 + distance / this.pixelsPerLevel };
  }

  /** Convert a movement in pixels to steps and v. */
  delta(dx, dy) {
    const [dSteps, dLevels] = this.swappedIfSideways(dx, dy);
    return { t: dSteps / this.pixelsPerStep, v: (this.vSign * dLevels) / this.pixelsPerLevel };
  }
}

/** Return the centre of the pixel that begins at the nearest whole number: a thin line is sharp there. */
export const sharp = (px) => Math.round(px) + 0.5;

export const contains = (rect, x, y) => x >= rect.x && x <= rect.x + rect.w && y >= rect.y && y <= rect.y + rect.h;

// Drawing with a `pen`, which is a 2-D context. A box is [x0, y0, x1, y1] in pixels.

export function drawClipped(pen, { x, y, w, h }, draw) {
  pen.save();
  try {
    pen.beginPath();
    pen.rect(x, y, w, h);
    pen.clip();
    draw();
  } finally {
    pen.restore();
  }
}

export function stroke(pen, [x0, y0, x1, y1], dash = []) {
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
  pen.setLineDash([]);
}

export function fillBox(pen, [x0, y0, x1, y1], colour = pen.fillStyle) {
  pen.fillStyle = colour;
  pen.fillRect(x0, y0, x1 - x0, y1 - y0);
}

export function strokeBox(pen, [x0, y0, x1, y1], dash = []) {
  pen.setLineDash(dash);
  pen.strokeRect(x0, y0, x1 - x0, y1 - y0);
  pen.setLineDash([]);
}

/** Call draw(isInner) twice, first with wider white lines: a line with a white border is visible on every colour. */
export function bordered(pen, width, draw) {
  for (const [ink, line] of [["rgba(255,255,255,0.9)", width + 2], ["#000", width]]) {
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = line;
    draw(line === width);
  }
}

/** Draw an arrow head of `size` pixels at the second point of a line. */
export function arrowHead(pen, [x0, y0, x1, y1], size) {
  const angle = Math.atan2(y1 - y0, x1 - x0);
  pen.beginPath();
  pen.moveTo(x1, y1);
  for (const turn of [2.7, -2.7]) pen.lineTo(x1 + size * Math.cos(angle + turn), y1 + size * Math.sin(angle + turn));
  pen.fill();
}
