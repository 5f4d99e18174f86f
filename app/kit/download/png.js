// A button that renders an SVG drawing to PNG in the browser and downloads it.

async function paint({ svg, width, height }) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await picture.decode();
  const sheet = document.createElement("canvas");
  Object.assign(sheet, { width, height });
  sheet.getContext("2d").drawImage(picture, 0, 0, width, height);
  return sheet.toDataURL("image/png");
}

const LOOK =
  "font: inherit; font-size: 0.875rem; min-height: 2.1rem; padding: 0.15rem 0.75rem; border-radius: 0.5rem; cursor: pointer; color: inherit; " +
  "background: transparent; border: 1px solid color-mix(in srgb, currentColor 25%, transparent);";
const pictureOf = new WeakMap(); // button → its current picture

export default function offer({ data, parentElement }) {
  let button = parentElement.querySelector("button");
  if (!button) {
    button = document.createElement("button");
    button.style.cssText = LOOK;
    button.addEventListener("click", async () => {
      const link = document.createElement("a"), now = pictureOf.get(button);
      link.download = now.name;
      link.href = await paint(now);
      link.click();
    });
    parentElement.append(button);
  }
  button.textContent = `PNG, ${data.width} × ${data.height}`;
  pictureOf.set(button, data);
}
