// Runs Node handlers, one job after the other. Alone in its process: nothing of hipq is there.
//
// Descriptors 3 and 5 are the private channel: lines of JSON come in, lines of JSON and counted bytes go out. Descriptor 4
// has the payloads. They are read blocking: nothing of a handler runs between its jobs. See docs/handlers-in-other-languages.md.
'use strict';

const fs = require('fs');
const vm = require('vm');
const { createRequire } = require('module');

const [ASKS, PAYLOADS, ANSWERS] = [3, 4, 5];
const MOST_DATA = 16 << 20;
const MOST_ERROR = 4000;
const handlers = new Map();
const handlerRequire = createRequire(process.cwd() + '/');
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const { exit } = process;
const stringify = JSON.stringify;

// What runs now: how to end it from outside, when something of it goes wrong behind its back.
let running = null;

class Handler {
  constructor(told) {
    this.type = told.type;
    this.scope = {};
    this.body = this.compile(told.body, 'body', ['payload', 'job']);
    this.beforeEach = this.compile(told.beforeEach, 'beforeEach', []);
    this.afterEach = this.compile(told.afterEach, 'afterEach', []);
    this.before = this.compile(told.before, 'before', []);
  }

  // Names in the scope are seen by every part. On one line with its head, so that line numbers stay right.
  compile(source, part, names) {
    if (!source.trim()) return null;
    const options = { filename: `<${this.type} ${part}>`, contextExtensions: [this.scope] };
    if (vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER) {
      options.importModuleDynamically = vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;
    }
    const whole = `return (async () => {${source}\n})();`;
    return vm.compileFunction(whole, [...names, 'require'], options);
  }

  async run(part) {
    if (part) await part.call(this.scope, handlerRequire);
  }
}

function encoded(data) {
  if (data === undefined || data === null) return Buffer.alloc(0);
  if (typeof data === 'string') return Buffer.from(data);
  if (ArrayBuffer.isView(data)) return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return Buffer.from(data);
  const text = stringify(data);
  if (text === undefined) throw new TypeError(`it returned a ${typeof data}, which is not JSON`);
  return Buffer.from(text);
}

function understood(result) {
  if (result === undefined || result === null) return [200, Buffer.alloc(0)];
  if (Number.isInteger(result)) return [result, Buffer.alloc(0)];
  if (Array.isArray(result) && result.length === 2 && Number.isInteger(result[0])) return [result[0], encoded(result[1])];
  return [200, encoded(result)];
}

// Its name and message; where it happened goes to the log.
function described(error) {
  let text;
  try {
    if (error instanceof Error || (error && error.stack)) {
      console.error(error.stack);
      text = `${error.name}: ${error.message}`;
    } else {
      text = `it threw ${typeof error === 'string' ? error : stringify(error)}`;
    }
  } catch (_) {
    text = 'it threw something that cannot be shown';
  }
  return text.slice(0, MOST_ERROR);
}

// The status, data and error of running something of the handler's.
async function attempted(work) {
  let retire = false;
  try {
    const result = await new Promise((resolve, reject) => {
      running = (error) => {
        retire = true; // the rest of it may still run, and would run into the next job
        reject(error);
      };
      work().then(resolve, reject);
    });
    const [status, data] = understood(result);
    if (data.length > MOST_DATA) return [413, Buffer.alloc(0), `it returned ${data.length} bytes; ${MOST_DATA} are allowed`, retire];
    return [Math.abs(status) < 1e9 ? status : 0, data, '', retire];
  } catch (error) {
    return [500, Buffer.alloc(0), described(error), retire];
  } finally {
    running = null;
  }
}

function read(descriptor, size) {
  const found = Buffer.allocUnsafe(size);
  let have = 0;
  while (have < size) {
    const more = fs.readSync(descriptor, found, have, size - have, null);
    if (more === 0) exit(0); // the daemon is gone
    have += more;
  }
  return found;
}

let received = Buffer.alloc(0);

function readLine() {
  const block = Buffer.allocUnsafe(1 << 16);
  let end;
  while ((end = received.indexOf(10)) < 0) {
    const more = fs.readSync(ASKS, block, 0, block.length, null);
    if (more === 0) exit(0);
    received = Buffer.concat([received, block.subarray(0, more)]);
  }
  const line = received.toString('utf8', 0, end);
  received = received.subarray(end + 1);
  return JSON.parse(line);
}

function write(bytes) {
  let rest = bytes;
  try {
    while (rest.length > 0) rest = rest.subarray(fs.writeSync(ANSWERS, rest, 0, rest.length));
  } catch (_) {
    exit(1); // the daemon is gone
  }
}

// Which pipes standard output and error are: a handler may close them, and something else may get their numbers.
function outputs() {
  try {
    return [1, 2].map((number) => fs.fstatSync(number).ino).join();
  } catch (_) {
    return '';
  }
}

// To the daemon. What was printed must be on its way before.
function say(kind, status = 200, data = Buffer.alloc(0), error = '', retire = false) {
  const line = Buffer.from(stringify({ kind, status, size: data.length, error, retire: retire || outputs() !== ownOutputs }) + '\n');
  write(data.length ? Buffer.concat([line, data]) : line);
}

function text(payload) {
  try {
    return utf8.decode(payload);
  } catch (_) {
    return payload;
  }
}

async function runJob(told) {
  const raw = read(PAYLOADS, told.size + 1).subarray(0, told.size);
  write(Buffer.from('{"kind":"begun"}\n'));
  const handler = handlers.get(told.handler);
  const job = { id: told.id, type: handler.type, attempt: told.attempt };
  const payload = text(raw);
  say('done', ...(await attempted(() => handler.body.call(handler.scope, payload, job, handlerRequire))));
}

async function load(told) {
  const [status, , error, retire] = await attempted(async () => {
    const handler = new Handler(told);
    handlers.set(told.handler, handler);
    await handler.run(handler.before);
  });
  say('done', status, undefined, error, retire);
}

function astray(error) {
  if (running) running(error);
  else console.error(error);
}

process.on('uncaughtException', astray);
process.on('unhandledRejection', astray);
process.on('beforeExit', () => astray(new Error('it waits for something that can never happen')));
process.on('exit', () => {
  if (running) write(Buffer.from('{"kind":"exit"}\n'));
});

// Else what is printed may still be on its way when the answer is read, and is lost if the process ends.
for (const stream of [process.stdout, process.stderr]) {
  if (stream._handle && stream._handle.setBlocking) stream._handle.setBlocking(true);
}
const ownOutputs = outputs();

async function main() {
  say('hello');
  for (;;) {
    const told = readLine();
    if (told.do === 'job') await runJob(told);
    else if (told.do === 'load') await load(told);
    else if (told.do === 'forget') handlers.delete(told.handler);
    else {
      const handler = handlers.get(told.handler);
      const part = told.do === 'begin' ? handler.beforeEach : handler.afterEach;
      const [status, , error, retire] = await attempted(() => handler.run(part).then(() => undefined));
      say('done', status, undefined, error, retire);
    }
  }
}

main().catch((error) => {
  console.error(error);
  exit(1);
});
