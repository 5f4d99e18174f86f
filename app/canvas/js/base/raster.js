// Draw boxes into a pixel buffer in O(boxes + pixels). The opacity of a pixel grows with the covered share of its area.
//
// Each box adds its colour with weight ±1 at its four corners; a corner inside a pixel is split over two columns and
// two rows. A running sum over rows and columns then gives the covered share and the mean colour of every pixel.
// Therefore a box thinner than a pixel is a faint shade, and no box hides another box.

export class Raster {
  reset(width, height) {
    if (this.width === width && this.height === height) this.sums.fill(0);
    else {
      Object.assign(this, { width, height, stride: 4 * (width + 2) });
      this.sums = new Float64Array(this.stride * (height + 2));
      this.columnSums = new Float64Array(this.stride);
      this.image = new ImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
  }

  /** Add a box in pixels. The box must be inside [0, width] × [0, height]. */
  add(x0, y0, x1, y1, r, g, b) {
    this.addEdge(x0, x1, y0, r, g, b, 1);
    this.addEdge(x0, x1, y1, r, g, b, -1);
  }
  addEdge(x0, x1, y, r, g, b, sign) {
    const row = Math.floor(y), part = y - row;
    this.addCorners(x0, x1, row, r, g, b, sign * (1 - part));
    if (part) this.addCorners(x0, x1, row + 1, r, g, b, sign * part);
  }
  addCorners(x0, x1, row, r, g, b, weight) {
    const begin = row * this.stride, left = Math.floor(x0), right = Math.floor(x1);
    this.addColour(begin + 4 * left, weight * (1 - x0 + left), r, g, b);
    if (x0 !== left) this.addColour(begin + 4 * left + 4, weight * (x0 - left), r, g, b);
    this.addColour(begin + 4 * right, -weight * (1 - x1 + right), r, g, b);
    if (x1 !== right) this.addColour(begin + 4 * right + 4, -weight * (x1 - right), r, g, b);
  }
  addColour(index, weight, r, g, b) {
    const sums = this.sums;
    sums[index] += weight * r;
    sums[index + 1] += weight * g;
    sums[index + 2] += weight * b;
    sums[index + 3] += weight;
  }

  /** Return the picture as ImageData. A covered pixel has an opacity of at least 1/8, so that thin boxes are visible. */
  finish() {
    const { sums, columnSums, width, height, stride, pixels } = this;
    columnSums.fill(0);
    let pixel = 0;
    for (let y = 0; y < height; y++) {
      let r = 0, g = 0, b = 0, weight = 0, at = y * stride; // the sums of the row up to x
      for (let x = 0, k = 0; x < width; x++, k += 4, at += 4) {
        r += sums[at];
        g += sums[at + 1];
        b += sums[at + 2];
        weight += sums[at + 3];
        columnSums[k] += r;
        columnSums[k + 1] += g;
        columnSums[k + 2] += b;
        const cover = (columnSums[k + 3] += weight);
        if (cover < 1e-5) {
          pixels[pixel++] = 0;
          continue;
        }
        const alpha = cover >= 1 ? 255 : (32 + 223 * cover) | 0;
        const red = (columnSums[k] / cover) & 255, green = (columnSums[k + 1] / cover) & 255;
        const blue = (columnSums[k + 2] / cover) & 255;
        pixels[pixel++] = (alpha << 24) | (blue << 16) | (green << 8) | red;
      }
    }
    return this.image;
  }
}
