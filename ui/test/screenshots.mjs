// The pictures of the documentation, from a real cluster: docs/img/page-*.png.

import { join, resolve } from "node:path";
import { Cluster, launch, serveSources, SKEWED, WORD_COUNT, WORDS } from "./cluster.mjs";

const OUT = resolve(import.meta.dirname, "..", "..", "docs", "img");
/** Time in which figures and histories fill up. */
const FILL_MS = Number(process.env.FILL_MS ?? 40_000);

const cluster = await Cluster.start({ hosts: 2 });
const browser = await launch();
try {
  await cluster.ardea("submit", WORD_COUNT);
  const kept = [`guarantee=exactly-once`, `checkpoints.folder=${join(cluster.folder, "checkpoints")}`, "job.containers=2"];
  await cluster.submit("payments", WORDS, ...kept.flatMap((it) => ["--set", it]));
  await cluster.submit("clicks", SKEWED);
  await cluster.ardea("submit", "flights", "--detach");
  await new Promise((done) => setTimeout(done, FILL_MS));
  await shoot("page-jobs", "#/jobs");
  await shoot("page-graph", "#/jobs/clicks/graph?step=counts");
  await shoot("page-latency", "#/jobs/word-count/latency");
} finally {
  await browser.close();
  await cluster.stop();
}

async function shoot(name, fragment) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 780 } });
  await serveSources(context);
  const page = await context.newPage();
  await page.goto(`${cluster.url}/ui/${fragment}`);
  await page.waitForTimeout(6_000);
  await page.screenshot({ path: join(OUT, `${name}.png`) });
  await context.close();
}
