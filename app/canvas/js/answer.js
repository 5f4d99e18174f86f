// Runs in the worker, behind the library and arrange.js: one drawing is asked for, one layout is answered.

globalThis.addEventListener("message", ({ data: { number, drawing } }) => {
  try {
    globalThis.postMessage({ number, layout: globalThis.arrange(globalThis.dagre, drawing) });
  } catch (error) {
    globalThis.postMessage({ number, why: String(error?.message ?? error) });
  }
});
