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
