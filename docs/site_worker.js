/* Search on pages that are opened from the disk: no browser starts a worker there, so a hidden frame does its work. */
(() => {
  "use strict";
  if (location.protocol !== "file:") return;

  const added = (page, address) =>
    new Promise((loaded) => {
      const script = page.createElement("script");
      script.src = String(address);
      script.onload = loaded;
      page.body.appendChild(script);
    });

  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      const page = this.inside.document;
      this.inside.postMessage = (data) => {
        const answer = new MessageEvent("message", { data });
        this.dispatchEvent(answer);
        if (this.onmessage) this.onmessage(answer);
      };
      this.inside.importScripts = (...addresses) =>
        addresses.reduce((before, next) => before.then(() => added(page, next)), Promise.resolve());
      this.ready = added(page, new URL(address, location.href));
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {}
  };
})();
