// Sends what is entered, with the token, to this daemon, and shows the reply. The token is kept nowhere but in its field.
const login = document.querySelector("#login");
const token = document.querySelector("#token");
let tenant = "";

async function ask(path, options) {
  const said = token.value.trim();
  const headers = said ? {...options.headers, Authorization: "Bearer " + said} : options.headers;
  return fetch(path, {...options, headers});
}

function show(output, text, good) {
  output.textContent = text;
  output.className = good ? "" : "bad";
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function whose() {
  const output = login.querySelector("output");
  try {
    const reply = await ask("/v1/whoami", {headers: {}});
    const said = await reply.json();
    if (!reply.ok) return show(output, reply.status === 401 ? "This daemon does not know this token." : said.error, false);
    show(output, said.tenant === null ? "This is an operator's token." : `This is a token of ${said.tenant}.`, true);
    const before = tenant;
    tenant = said.tenant || "";
    for (const field of document.querySelectorAll("[name=client]")) {
      if (field.value === before) field.value = tenant;  // else somebody has entered another tenant, as an operator may
    }
  } catch (error) {
    show(output, `The token cannot be checked: ${error.message}`, false);
  }
}

async function send(form) {
  const output = form.querySelector("output"), shown = form.querySelector("pre"), button = form.querySelector("button");
  const query = new URLSearchParams(), options = {method: form.dataset.method, headers: {}};
  let path = form.dataset.path;
  for (const {name, value, dataset} of form.querySelectorAll("[data-in]")) {
    if (dataset.in === "path") path = path.replace(`{${name}}`, () => encodeURIComponent(value));
    else if (value && dataset.in === "query") query.set(name, value);
    else if (value) options.headers[name] = value;
  }
  if (form.elements.body?.value) {
    options.body = form.elements.body.value;
    options.headers["Content-Type"] = form.elements.kind.value;
  }
  button.disabled = true;
  show(output, "...", true);
  shown.hidden = true;
  try {
    const reply = await ask(path + (query.size ? "?" + query : ""), options);
    const text = await reply.text();
    const more = [...reply.headers].filter(([name]) => /^x-hipq-|^retry-after$/.test(name)).map(pair => ", " + pair.join(": "));
    show(output, `${reply.status} ${reply.statusText}${more.join("")}`, reply.ok);
    shown.textContent = pretty(text);
    shown.hidden = false;
  } catch (error) {
    show(output, `There was no reply: ${error.message}`, false);
  }
  button.disabled = false;
}

token.onchange = whose;
for (const form of document.forms) {
  form.onsubmit = event => {
    event.preventDefault();
    form === login ? whose() : send(form);
  };
}
