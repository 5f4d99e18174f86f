// The overview after zooming in: a small picture of the whole plan with a frame around the visible part.

import { css } from "../base/colours.js";
import { contains, Plane } from "../base/plane.js";
import { Raster } from "../base/raster.js";
import { bordered, fillBox, strokeBox } from "./pen.js";
import { drawBoxes } from "./picture.js";

const SHARE = 0.17; // width and height, relative to the plot
const INSET = 8; // distance to the edges of the plot in pixels

export class Overview {
  tools = { raster: new Raster(), sheet: document.createElement("canvas") }; // for drawBoxes()
  canvas = document.createElement("canvas");
  plane = null; // coordinate system of the overview; null while the overview is hidden

  /** Draw the overview in the upper right corner of the plot; `full` is the window of the whole plan. */
  draw(pen, frameState, full) {
    const { plot, plane, look } = frameState, { t0, t1, v0, v1 } = plane.win;
    const w = Math.round(plot.w * SHARE), h = Math.round(plot.h * SHARE), x = plot.x + plot.w - w - INSET, y = plot.y + INSET;
    this.plane = new Plane({ x, y, w, h }, full, plane);
    this.drawContent(frameState, full, w, h);
    fillBox(pen, [x - 3, y - 3, x + w + 3, y + h + 3], css(look.solid));
    pen.drawImage(this.canvas, x, y, w, h);
    Object.assign(pen, { lineWidth: 1, strokeStyle: look.soft });
    strokeBox(pen, [x - 3.5, y - 3.5, x + w + 3.5, y + h + 3.5]);
    const [left, top, right, bottom] = this.plane.visibleBox(t0, t1, v0, v1);
    const frame = [left, top, Math.max(left + 2, right), Math.max(top + 2, bottom)];
    bordered(pen, 1.5, () => strokeBox(pen, frame));
  }

  drawContent(frameState, full, w, h) {
    const { scene, colouring, hits, look, ratio } = frameState, content = [scene, colouring, hits, look, w, h];
    if (this.content?.every((part, k) => part === content[k])) return;
    this.content = content;
    Object.assign(this.canvas, { width: w * ratio, height: h * ratio }); // this also clears the canvas
    const pen = this.canvas.getContext("2d"), plot = { x: 0, y: 0, w, h };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawBoxes(pen, { ...frameState, plot, plane: new Plane(plot, full, frameState.plane) }, this.tools);
  }

  /** Return the {t, v} at a pixel; null outside of the overview. */
  at(x, y) {
    return this.plane && contains(this.plane.rect, x, y) ? this.plane.at(x, y) : null;
  }
}
