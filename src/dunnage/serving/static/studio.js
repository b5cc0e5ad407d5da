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
