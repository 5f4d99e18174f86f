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
  "font: inherit; min-height: 2.5rem; padding: 0.25rem 0.75rem; border-radius: 0.5rem; cursor: pointer; color: inherit; " +
  "display: flex; align-items: center; gap: 0.5rem; " +
  "background: transparent; border: 1px solid color-mix(in srgb, currentColor 25%, transparent);";
const pictureOf = new WeakMap(); // button → its current picture

/** Return the icon of the other download buttons, from the font that Streamlit loads. */
function icon() {
  const sign = document.createElement("span");
  sign.textContent = "download";
  sign.ariaHidden = "true";
  sign.style.cssText = 'font: 400 1.1rem/1 "Material Symbols Rounded"; user-select: none;';
  return sign;
}

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
    button.append(icon(), "");
    parentElement.append(button);
  }
  button.lastChild.textContent = `PNG, ${data.width} × ${data.height}`;
  pictureOf.set(button, data);
}
