// Conversion between data and pixels, so that most of the drawing is independent of the direction of the axes.
//
// `t` is a step; `v` is the other coordinate: a byte, a slot or a row. A drawing has one of three orientations:
//
//   upright   steps run right, v runs up      (the arena map, the slots, the curve of live bytes)
//   falling   steps run right, v runs down    (lifetimes: a row per tensor, from top to bottom)
//   sideways  steps run down,  v runs right   (any drawing with swapped axes)
//
// A rectangle of pixels is {x, y, w, h}; a window of data is {t0, t1, v0, v1}; a box in pixels is [x0, y0, x1, y1].

export class Plane {
  constructor(rect, win, { sideways = false, falling = false } = {}) {
    Object.assign(this, { rect, win, sideways, falling });
    this.vSign = sideways || falling ? 1 : -1; // 1: a greater v has a greater pixel
    [this.alongSteps, this.alongLevels] = this.turned(rect.w, rect.h); // pixels
    this.perStep = this.alongSteps / (win.t1 - win.t0);
    this.perLevel = this.alongLevels / (win.v1 - win.v0);
  }

  /** Convert a pair from (step, v) order to (x, y) order, or back: swap the pair if sideways. */
  turned(ofSteps, ofLevels) {
    return this.sideways ? [ofLevels, ofSteps] : [ofSteps, ofLevels];
  }

  /** Return the pixel of a step on the step axis. */
  step(t) {
    return (this.sideways ? this.rect.y : this.rect.x) + (t - this.win.t0) * this.perStep;
  }

  /** Return the pixel of a coordinate v on the v axis. */
  level(v) {
    const far = (v - this.win.v0) * this.perLevel;
    if (this.sideways) return this.rect.x + far;
    return this.vSign > 0 ? this.rect.y + far : this.rect.y + this.rect.h - far;
  }

  point(t, v) {
    return this.turned(this.step(t), this.level(v));
  }

  box(t0, t1, v0, v1) {
    const [x0, y0] = this.point(t0, v0), [x1, y1] = this.point(t1, v1);
    return [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
  }

  /** Return the visible part of a box; its width or height is 0 or negative if no part is visible. */
  seenBox(t0, t1, v0, v1) {
    const [x0, y0, x1, y1] = this.box(t0, t1, v0, v1), { x, y, w, h } = this.rect;
    return [Math.max(x0, x), Math.max(y0, y), Math.min(x1, x + w), Math.min(y1, y + h)];
  }

  /** Return the ends [x0, y0, x1, y1] of a sharp line at coordinate v from step t0 to t1. */
  levelLine(v, t0, t1) {
    const at = sharp(this.level(v));
    return [...this.turned(this.step(t0), at), ...this.turned(this.step(t1), at)];
  }

  /** Return the ends of a line across the rectangle, at a pixel of the step axis or, for `isLevel`, of the v axis. */
  across(px, isLevel = false) {
    const { x, y, w, h } = this.rect;
    return this.sideways === isLevel ? [px, y, px, y + h] : [x, px, x + w, px];
  }

  /** Return the {t, v} of a pixel. */
  at(x, y) {
    const { rect, win } = this, [on, across] = this.turned(x - rect.x, y - rect.y);
    const far = this.vSign > 0 ? across : this.alongLevels - across;
    return { t: win.t0 + on / this.perStep, v: win.v0 + far / this.perLevel };
  }

  /** Convert a movement in pixels to steps and v. */
  delta(dx, dy) {
    const [on, across] = this.turned(dx, dy);
    return { t: on / this.perStep, v: (this.vSign * across) / this.perLevel };
  }
}

/** Return the centre of the nearest pixel, where a thin line is sharp. */
export const sharp = (px) => Math.round(px) + 0.5;

export const contains = (rect, x, y) => x >= rect.x && x <= rect.x + rect.w && y >= rect.y && y <= rect.y + rect.h;
