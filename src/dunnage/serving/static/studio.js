// SPDX-License-Identifier: Apache-2.0
// Live parts of the studio. Every page works without it: forms post, and waiting pages reload.
"use strict";

// A page that waits for a job follows its events, and goes on when the job is over.
for (const place of document.querySelectorAll("[data-events]")) {
  const events = new EventSource(place.dataset.events);
  events.onmessage = (message) => {
    const job = JSON.parse(message.data);
    const stage = place.querySelector("[data-stage]");
    if (stage && stage.textContent !== job.says) stage.textContent = job.says;
    if (job.over) {
      events.close();
      location.replace(job.place);
    }
  };
}

document.addEventListener("input", (event) => {
  const shown = event.target.dataset && event.target.dataset.shows && document.getElementById(event.target.dataset.shows);
  if (shown) shown.value = event.target.value;
});

// A form says that it was sent, and is not sent twice.
document.addEventListener("submit", (event) => {
  for (const button of event.target.querySelectorAll("button[type=submit]")) {
    if (event.target.dataset.sent) event.preventDefault();
    button.setAttribute("aria-busy", "true");
  }
  if (!event.target.hasAttribute("hx-post")) event.target.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
  for (const button of document.querySelectorAll("[aria-busy]")) button.removeAttribute("aria-busy");
});

// Passkeys: the browser makes or uses one, and the form sends what it says.
for (const form of document.querySelectorAll("[data-passkey]")) {
  form.hidden = !window.PublicKeyCredential || !PublicKeyCredential.parseRequestOptionsFromJSON;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    const failed = form.querySelector("[role=alert]");
    failed.hidden = true;
    try {
      const answer = await fetch(form.dataset.passkey, { method: "POST", body: new URLSearchParams() });
      const options = await answer.json();
      const credential = form.dataset.makes
        ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
        : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
      form.elements.credential.value = JSON.stringify(credential);
      form.submit();
    } catch {
      failed.hidden = false;
    }
  });
}

// Zones are drawn on a map: what is inside a rectangle or a polygon is ticked in the table, which is what is sent.
for (const map of document.querySelectorAll("[data-draws]")) {
  const form = map.closest("form"), outline = map.querySelector(".outline"), says = document.getElementById(map.dataset.draws);
  const stops = [...map.querySelectorAll("[data-stop]")].map((circle) => ({
    circle, at: [+circle.getAttribute("cx"), +circle.getAttribute("cy")],
    box: form.querySelector(`input[name=stop][value="${circle.dataset.stop}"]`),
  }));
  let corners = [], begun = null, isRectangle = false;
  const place = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
    return [point.x, point.y];
  };
  const far = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]) * map.getScreenCTM().a; // pixels
  const draw = (points) => outline.setAttribute("points", points.map((point) => point.join(",")).join(" "));
  const show = () => {
    for (const { circle, box } of stops) circle.classList.toggle("ticked", box.checked);
    const count = stops.filter(({ box }) => box.checked).length;
    says.textContent = `${count} of ${stops.length} stops ticked.`;
  };
  const isInside = ([x, y], points) => {
    let inside = false;
    points.forEach(([x1, y1], index) => {
      const [x2, y2] = points[(index + points.length - 1) % points.length];
      if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
    });
    return inside;
  };
  const finish = () => {
    for (const { at, box } of stops) if (isInside(at, corners)) box.checked = true;
    corners = [];
    draw(corners);
    show();
  };
  map.addEventListener("pointerdown", (event) => {
    begun = place(event);
    isRectangle = false;
    map.setPointerCapture(event.pointerId);
  });
  map.addEventListener("pointermove", (event) => {
    const now = place(event);
    if (begun && (isRectangle || far(begun, now) > 5)) {
      isRectangle = true;
      corners = [begun, [now[0], begun[1]], now, [begun[0], now[1]]];
      draw(corners);
    } else if (!begun && corners.length) draw([...corners, now]);
  });
  map.addEventListener("pointerup", (event) => {
    if (!begun) return;
    begun = null;
    if (isRectangle) return finish();
    const now = place(event);
    if (corners.length > 2 && far(corners[0], now) < 12) return finish();
    corners.push(now);
    draw(corners);
  });
  map.addEventListener("pointercancel", () => { begun = null; });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    begun = null;
    corners = [];
    draw(corners);
  });
  form.addEventListener("change", show);
  form.addEventListener("reset", () => setTimeout(show));
  show();
}

// Drop a file anywhere on its field.
for (const field of document.querySelectorAll(".drop")) {
  const input = field.querySelector("input[type=file]");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    field.addEventListener(kind, (event) => {
      event.preventDefault();
      field.classList.toggle("over", kind === "dragover");
      if (kind === "drop") input.files = event.dataTransfer.files;
    });
  }
}
