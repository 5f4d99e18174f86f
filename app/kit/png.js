// A button that renders an SVG drawing to PNG in the browser and downloads it.

const STYLE =
  "font: inherit; font-size: 0.875rem; min-height: 2.5rem; padding: 0.25rem 0.75rem; border-radius: 0.5rem; cursor: pointer; color: inherit; " +
  "display: flex; align-items: center; gap: 0.5rem; " +
  "background: transparent; border: 1px solid color-mix(in srgb, currentColor 25%, transparent);";
const FONT = "font: 400 1.1rem/1 'Material Symbols Rounded'; user-select: none"; // Streamlit loads this font

export default function drawPngButton({ data: { svg, width, height, name }, parentElement }) {
  const button = document.createElement("button");
  button.style.cssText = STYLE;
  button.innerHTML = `<span aria-hidden="true" style="${FONT}">download</span>`;
  button.append(`PNG, ${width} × ${height}`);
  button.addEventListener("click", async () => {
    const picture = new Image(), canvas = document.createElement("canvas"), link = document.createElement("a");
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await picture.decode();
    Object.assign(canvas, { width, height });
    canvas.getContext("2d").drawImage(picture, 0, 0, width, height);
    Object.assign(link, { download: name, href: canvas.toDataURL("image/png") });
    link.click();
  });
  parentElement.querySelector("button")?.remove();
  parentElement.append(button);
}
