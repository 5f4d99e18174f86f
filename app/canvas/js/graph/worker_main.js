// The message handler of the layout worker. The script of the worker begins with the library and layout.js.

globalThis.addEventListener("message", ({ data: { number, drawing } }) => {
  try {
    globalThis.postMessage({ number, layout: globalThis.arrange(globalThis.dagre, drawing) });
  } catch (error) {
    globalThis.postMessage({ number, why: String(error?.message ?? error) });
  }
});
