// Colours of lines, text and background in the current theme.

import { luminance } from "./colours.js";

/** Approximate width of a letter of `font` in pixels. */
export const LETTER = 6.1;

/** Return the look of an element. `ink` is the CSS colour of its text. `solid` is its background as [r, g, b], or white
 * if its opacity is at most 0.5. `dark` is true for a dark background. `hatch` is a canvas with diagonal lines. The
 * other fields are the font and CSS colours of lines and areas. `ratio`: device pixels per CSS pixel. */
export function lookOf(element, ratio) {
  const style = getComputedStyle(element);
  const channels = (style.backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  const solid = channels.length < 4 || channels[3] > 0.5 ? channels.slice(0, 3) : [255, 255, 255];
  const dark = luminance(solid) < 0.3;
  const tone = (alphaDark, alphaLight) => (dark ? `rgba(255,255,255,${alphaDark})` : `rgba(0,0,0,${alphaLight})`);
  const hatch = document.createElement("canvas"), pen = hatch.getContext("2d");
  hatch.width = hatch.height = 8 * ratio;
  pen.scale(ratio, ratio);
  pen.strokeStyle = tone(0.2, 0.16);
  pen.stroke(new Path2D("M-9 9 L1 -1 M-1 9 L9 -1 M7 9 L17 -1"));
  return {
    ink: style.color,
    solid,
    dark,
    font: `11px ${style.fontFamily}`,
    soft: tone(0.62, 0.6), // less contrast than `ink`
    grid: tone(0.1, 0.08),
    line: tone(0.85, 0.85),
    panel: tone(0.035, 0.018), // background of arenas, frames and the live-bytes strip
    live: dark ? "rgba(86,180,233,0.75)" : "rgba(0,114,178,0.70)",
    hatch,
  };
}
