// Message loop of the layout worker, after the library and layout.js: one layout per drawing.

globalThis.addEventListener("message", ({ data: { number, drawing } }) => {
  try {
    globalThis.postMessage({ number, layout: globalThis.arrange(globalThis.dagre, drawing) });
  } catch (error) {
    globalThis.postMessage({ number, why: String(error?.message ?? error) });
  }
});
