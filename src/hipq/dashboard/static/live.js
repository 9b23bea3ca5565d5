// Keeps a page up to date while it is looked at: elements with an id and data-live are replaced when they have changed.
"use strict";
(() => {
  const root = new URL("..", document.currentScript.src);
  const LOST = 3000, POLL = 3000, AGAIN = 5000;
  const polls = document.body.dataset.liveMode === "poll";
  const offline = document.getElementById("offline");
  const pause = document.getElementById("pause");
  const held = new Map(); // elements that somebody uses just now: what they will be
  const known = new Map(); // what came last
  let source = null, since = "", status = 200, timer = 0, losing = 0;

  // -- putting elements in place ---------------------------------------------------------------------------------------
  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }
  // Without what moves by itself, and what differs from visitor to visitor.
  function compared(element) {
    const copy = element.cloneNode(true);
    for (const text of copy.querySelectorAll("time, [data-until]")) text.textContent = "";
    for (const details of copy.querySelectorAll("details[id]")) {
      details.open = false;
      delete details.dataset.chosen;
    }
    for (const own of copy.querySelectorAll("input[type=hidden]:is([name^=csrf], [name=once])")) own.remove();
    copy.normalize();
    return copy;
  }
  function isUsed(element) {
    const chosen = getSelection();
    const focus = document.activeElement;
    return (focus !== document.body && element.contains(focus) && focus.matches(":focus-visible"))
      || (chosen && !chosen.isCollapsed && chosen.containsNode(element, true))
      || element.querySelector("input[type=checkbox]:checked") !== null;
  }
  // Renderings are shared: forms get this visitor's token here, and a text of their own, by which sent twice is once.
  function signed(element) {
    const token = document.querySelector("meta[name=csrf]")?.content;
    for (const form of token ? element.querySelectorAll("form[method=post i]") : []) {
      for (const [name, value] of [["csrf", token], ["once", crypto.getRandomValues(new Uint32Array(4)).join("-")]]) {
        let field = form.querySelector(`input[name=${name}]`);
        if (!field) {
          field = Object.assign(document.createElement("input"), { type: "hidden", name });
          form.prepend(field);
        }
        field.value ||= value;
      }
    }
  }
  function arrived(id, next) {
    const text = compared(next).outerHTML;
    if (known.get(id) === text) return;
    known.set(id, text);
    place(id, next);
  }
  function place(id, next) {
    const element = document.getElementById(id);
    held.delete(id);
    if (!element?.matches("[data-live]") || compared(element).isEqualNode(compared(next))) return;
    if (isUsed(element)) {
      held.set(id, next);
      return;
    }
    signed(next);
    for (const before of element.querySelectorAll("details[id][data-chosen]")) {
      const after = next.querySelector(`#${CSS.escape(before.id)}`);
      if (after) Object.assign(after, { open: before.open }).dataset.chosen = "";
    }
    const { scrollLeft, scrollTop } = element;
    element.replaceWith(next);
    Object.assign(next, { scrollLeft, scrollTop });
    next.dispatchEvent(new CustomEvent("hipq:updated", { bubbles: true }));
  }
  function placeHeld() {
    for (const [id, next] of [...held]) place(id, next);
  }
  // What somebody has unfolded, or folded, stays so.
  document.addEventListener("click", ({ target }) => {
    const details = target.closest?.("summary")?.parentElement;
    if (details) details.dataset.chosen = "";
  });
  for (const name of ["focusout", "change", "selectionchange"]) {
    document.addEventListener(name, () => setTimeout(placeHeld));
  }

  // -- the connection --------------------------------------------------------------------------------------------------
  function found() {
    clearTimeout(losing);
    losing = 0;
    if (offline) offline.hidden = true;
  }
  function lost() {
    losing ||= setTimeout(() => { if (offline) offline.hidden = false; }, LOST);
  }
  const here = () => `${location.pathname}${location.search}`;
  const fetched = () => fetch(here(), { headers: { "x-fragment": "1" }, cache: "no-store" });
  const isAway = (reply) => reply.redirected || reply.status === 401 || reply.status === 403;
  function follow() {
    const address = new URL("live", root);
    address.searchParams.set("page", `/${here().slice(root.pathname.length)}`);
    if (since) address.searchParams.set("since", since);
    source = new EventSource(address);
    source.onmessage = (event) => {
      since = event.lastEventId;
      const told = JSON.parse(event.data);
      for (const [id, html] of Object.entries(told.elements)) arrived(id, parsed(html).firstElementChild);
      status = told.status;
      if (status === 200) found();
      else lost();
    };
    source.onopen = () => status === 200 && found();
    source.onerror = () => {
      lost();
      if (source?.readyState === EventSource.CLOSED) refused();
    };
  }
  // The browser does not try again where it was refused: this may be over, or the login is.
  async function refused() {
    close();
    timer = setTimeout(async () => {
      try {
        if (isAway(await fetched())) return location.reload();
      } catch { /* nobody is there */ }
      open();
    }, AGAIN + Math.random() * AGAIN);
  }
  async function poll() {
    try {
      const reply = await fetched();
      if (isAway(reply)) return location.reload();
      if (!timer) return; // closed meanwhile
      if (reply.ok) {
        for (const next of parsed(await reply.text()).querySelectorAll("[data-live][id]")) arrived(next.id, next);
        found();
      } else {
        lost();
      }
    } catch {
      lost();
    }
    if (timer) timer = setTimeout(poll, POLL);
  }
  function close() {
    source?.close();
    source = null;
    clearTimeout(timer);
    timer = 0;
  }
  function open() {
    close();
    if (document.hidden || pause?.getAttribute("aria-pressed") === "true") return;
    if (!document.querySelector("[data-live][id]")) return;
    if (polls) timer = setTimeout(poll, POLL);
    else follow();
  }
  pause?.addEventListener("click", () => {
    const pressed = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(pressed));
    if (pressed) found();
    open();
  });
  document.addEventListener("visibilitychange", open);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  open();
})();
