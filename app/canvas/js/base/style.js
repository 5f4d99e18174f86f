// The style of the canvas. It is part of the script, because reports and notebooks have no other style sheet.

export const STYLE = `
.tmmu-canvas {
  color: var(--st-text-color, inherit); background-color: var(--st-background-color, transparent);
  transition: color 1ms, background-color 1ms;
  font: 13px/1.35 var(--st-font, system-ui, sans-serif);
  :is(.chart-title, .foot, .bar, .overlay, .tip)[hidden] { display: none; }
  .chart-title { font-weight: 600; font-size: 14px; margin: 0 0 6px; overflow-wrap: anywhere; }
  .bar { display: flex; flex-wrap: wrap; gap: 6px 10px; align-items: center; margin-bottom: 6px; }
  .bar label { opacity: 0.9; white-space: nowrap; }
  .grow { flex: 1; }
  button, select, input[type=search] {
    font: inherit; color: inherit; background: var(--st-secondary-background-color, rgba(128,128,128,0.12));
    border: 1px solid rgba(128,128,128,0.35); border-radius: 5px; padding: 3px 9px; min-height: 28px; box-sizing: border-box;
  }
  select option { color: #111; background: #fff; }
  button { cursor: pointer; white-space: nowrap; }
  .tabs { display: inline-flex; }
  .tabs button { border-radius: 0; margin-left: -1px; background: transparent; }
  .tabs button:first-child { border-radius: 5px 0 0 5px; }
  .tabs button:last-child { border-radius: 0 5px 5px 0; }
  .tabs button[aria-pressed=true] { background: #0072B2; border-color: #0072B2; color: #fff; }
  input[type=search] { flex: 1 1 90px; max-width: 150px; min-width: 64px; }
  .count { opacity: 0.75; margin-left: auto; }
  .count, .status, .tip { font-variant-numeric: tabular-nums; }
  .stage { position: relative; touch-action: pan-y pinch-zoom; user-select: none; outline: none; border-radius: 4px; cursor: crosshair; }
  .stage:focus-visible { box-shadow: 0 0 0 2px #0072B2; }
  canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
  .over { pointer-events: none; }
  .tip {
    position: absolute; z-index: 3; pointer-events: none; max-width: min(430px, 92%); display: grid;
    grid-template-columns: auto 1fr; gap: 1px 10px; padding: 7px 10px; font-size: 12px; overflow-wrap: anywhere;
    color: #f4f4f4; background: #16181d; border: 1px solid rgba(255,255,255,0.25); border-radius: 6px;
  }
  .tip b { grid-column: 1 / -1; }
  .tip .head { opacity: 0.65; white-space: nowrap; }
  .foot { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 2px 18px; font-size: 12px; margin-top: 4px; }
  .legend { display: flex; flex-wrap: wrap; gap: 2px 12px; }
  .legend > span { display: inline-flex; align-items: center; gap: 5px; }
  .note { opacity: 0.7; }
  .status { opacity: 0.8; }
  i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; }
  i.rule { height: 0; width: 20px; border-top-width: 2px; border-radius: 0; border-color: currentColor; }
  i:is(.dashed, .dotted) { border: 1px dashed; box-sizing: border-box; }
  i.dotted { border-style: dotted; }
  i.hatch {
    background: repeating-linear-gradient(135deg, rgba(128,128,128,0.15) 0 2px, rgba(128,128,128,0.7) 2px 3px);
    border: 1px solid rgba(128,128,128,0.4); box-sizing: border-box;
  }
  .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  &.waiting .stage::after { content: "waiting for the plan…"; position: absolute; inset: 45% 0 0; text-align: center; opacity: 0.7; }
}
@media print {
  .tmmu-canvas .bar { display: none; }
  .tmmu-canvas .stage { break-inside: avoid; height: auto !important; }
  /* the picture keeps its aspect ratio on every paper size */
  .tmmu-canvas canvas.base { position: static; height: auto; display: block; }
}
`;
