// The overview after zooming in: a small picture of the whole plan with a frame around the visible part.

import { css } from "../base/colours.js";
import { drawBoxes } from "./picture.js";
import { contains, Plane } from "../base/plane.js";
import { Raster } from "../base/raster.js";

const SHARE = 0.17; // of the plot's width and height
const INSET = 8; // distance to the edges of the plot in pixels

export class Overview {
  constructor() {
    this.tools = { raster: new Raster(), sheet: document.createElement("canvas") };
    this.canvas = document.createElement("canvas");
    this.plane = null; // coordinate system of the overview; null while the overview is hidden
  }

  /** Draw the overview in the upper right corner of the plot; `full` is the window of the whole plan. */
  draw(pen, sight, full) {
    const { plot, plane, look } = sight, w = Math.round(plot.w * SHARE), h = Math.round(plot.h * SHARE);
    const rect = { x: plot.x + plot.w - w - INSET, y: plot.y + INSET, w, h };
    this.plane = new Plane(rect, full, { sideways: plane.sideways, falling: sight.scene.falling });
    this.paint(sight, full, w, h);
    pen.fillStyle = css(look.solid);
    pen.fillRect(rect.x - 3, rect.y - 3, w + 6, h + 6);
    pen.drawImage(this.canvas, rect.x, rect.y, w, h);
    pen.lineWidth = 1;
    pen.strokeStyle = look.soft;
    pen.strokeRect(rect.x - 3.5, rect.y - 3.5, w + 7, h + 7);
    const { t0, t1, v0, v1 } = plane.win, [x0, y0, x1, y1] = this.plane.seenBox(t0, t1, v0, v1);
    for (const [ink, width] of [["rgba(255,255,255,0.9)", 3.5], ["#000", 1.5]]) {
      pen.strokeStyle = ink;
      pen.lineWidth = width;
      pen.strokeRect(x0, y0, Math.max(2, x1 - x0), Math.max(2, y1 - y0));
    }
  }

  /** Draw the small picture if its content has changed. */
  paint(sight, full, w, h) {
    const { scene, paints, hits, look, ratio } = sight, content = [scene, paints, hits, look, w, h];
    if (this.content?.every((part, k) => part === content[k])) return;
    this.content = content;
    this.canvas.width = w * ratio;
    this.canvas.height = h * ratio;
    const pen = this.canvas.getContext("2d"), plot = { x: 0, y: 0, w, h };
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, h);
    const { sideways } = sight.plane, plane = new Plane(plot, full, { sideways, falling: scene.falling });
    drawBoxes(pen, { ...sight, plane, plot }, this.tools);
  }

  hide() {
    this.plane = null;
  }

  /** Return the {t, v} at a pixel of the overview; null for a pixel outside of it. */
  at(x, y) {
    return this.plane && contains(this.plane.rect, x, y) ? this.plane.at(x, y) : null;
  }
}
