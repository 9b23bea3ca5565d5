// pg-boss: `insert` in batches, `work` with as many hands as it is given. The contract is that of contract.py.
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import * as library from "pg-boss";

const PgBoss = library.PgBoss ?? library.default;
const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const WORKERS = number("WORKERS", 10);
const WORK_SECONDS = number("WORK_SECONDS", 0.001);
const BATCH = number("BATCH", 20);
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const said = (line) => writeSync(1, line + "\n");

const boss = new PgBoss(process.env.DATABASE_URL);
boss.on("error", (error) => console.error(String(error)));

async function produce() {
  let rate = 0, over = false, next = 0, due = 0, last = performance.now();
  createInterface({ input: process.stdin }).on("line", (line) => (rate = Number(line))).on("close", () => (over = true));
  while (!over) {
    const now = performance.now();
    due += (rate * (now - last)) / 1000;
    last = now;
    if (due >= 1) {
      const count = Math.min(Math.floor(due), BATCH);
      const data = (one) => ({ number: next + one, at: Date.now() / 1000, padding: "x".repeat(150) });
      try {
        await boss.insert("work", Array.from({ length: count }, (_, one) => ({ name: "work", data: data(one) })));
        said(`A ${next} ${next + count - 1}`);
      } catch (error) {
        console.error(`not added: ${error}`);
        await sleep(0.1);
      }
      due -= count;
      next += count;
    }
    if (due < 1) await sleep(0.02);
  }
  process.exit(0);
}

async function work() {
  // By default each hand asks every two seconds for one job: five a second. These are the settings of the public arena.
  const settings = { localConcurrency: WORKERS, pollingIntervalSeconds: 0.5, batchSize: 13 };
  await boss.work("work", settings, async (jobs) => {
    for (const { data } of jobs) {
      said(`S ${data.number} ${(Date.now() / 1000 - data.at).toFixed(6)}`);
      if (WORK_SECONDS) await sleep(WORK_SECONDS);
      said(`D ${data.number}`);
    }
  });
}

await boss.start();
if (process.argv[2] === "install") {
  await boss.createQueue("work");
  process.exit(0);
}
await (process.argv[2] === "work" ? work() : produce());
