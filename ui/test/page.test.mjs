// Tests of the page on a real cluster, in headless Chromium.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { Cluster, freePort, launch, serveSources, SKEWED, start, WORD_COUNT, WORDS } from "./cluster.mjs";

const TIMEOUT = 60_000;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let browser;
let context;
let page;
/** What the browser complains about. */
let complaints;

before(async () => {
  browser = await launch();
});

after(async () => {
  await browser?.close();
});

beforeEach(async () => {
  // axe is added by the test, which the page's own policy forbids.
  context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  await serveSources(context);
  page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT);
  complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Uncaught/.test(message.text())) complaints.push(message.text());
  });
});

afterEach(async () => {
  await context.close();
  assert.deepEqual(complaints, []);
});

/** Asserts that axe finds nothing serious in what is shown. */
async function assertAccessible(where) {
  const session = await context.newCDPSession(page);
  // Evaluated by the debugger, which the page's policy allows.
  await session.send("Runtime.evaluate", { expression: axe });
  const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
  const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact));
  const found = serious.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  assert.deepEqual(found, [], where);
}

/** Asserts that nothing is wider than the window. */
async function assertFits(where) {
  const extent = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(extent[0] <= extent[1], `${where}: ${extent}`);
}

/** Sends lines to a port that may not be open yet. */
async function sendLines(port, lines) {
  for (;;) {
    const isSent = await new Promise((done) => {
      const socket = connect(port, "127.0.0.1", () => socket.end(`${lines.join("\n")}\n`, () => done(true)));
      socket.on("error", () => done(false));
    });
    if (isSent) return;
    await new Promise((done) => setTimeout(done, 100));
  }
}

const row = (name) => page.locator(`tr[data-job=${JSON.stringify(name)}]`);
const dialog = () => page.getByRole("dialog");
const job = (name, tab = "graph") => `#/jobs/${encodeURIComponent(name)}/${tab}`;

describe("a cluster", { timeout: 900_000 }, () => {
  let cluster;
  const open = (fragment) => page.goto(`${cluster.url}/ui/${fragment}`);

  before(async () => {
    cluster = await Cluster.start();
    await cluster.ardea("submit", WORD_COUNT);
  });

  after(async () => {
    await cluster?.stop();
  });

  test("the root leads to the list of jobs, with their live figures", async () => {
    await page.goto(cluster.url);
    await page.waitForURL(/\/ui\//);
    await row("word-count").getByText("running").waitFor();
    await row("word-count").getByText(/k\/s/).first().waitFor();
    await assertAccessible("jobs");
  });

  test("the graph of a job has its steps and their rates, and the keyboard opens a step", async () => {
    await open(job("word-count"));
    const step = page.locator('[data-step="counts"]');
    await step.getByText(/in .*k/).waitFor();
    await page.getByText("20.0 k/s").first().waitFor();
    await step.focus();
    await page.keyboard.press("Enter");
    const panel = page.getByRole("complementary", { name: "step counts" });
    await panel.getByRole("rowheader", { name: "1" }).waitFor();
    await panel.getByText(/k\/s/).first().waitFor();
    await assertAccessible("graph");
    await panel.getByRole("button", { name: "close the panel" }).focus();
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
    for (const name of ["zoom in", "zoom out", "Fit"]) await page.getByRole("button", { name }).click();
  });

  test("each view shows its figures, is accessible, and fits a phone", async () => {
    const seen = {
      latency: () => page.getByRole("img", { name: /heat map of latencies; the 99th percentile is \d/ }),
      checkpoints: () => page.getByText("This job has no guarantee"),
      placement: () => page.getByRole("heading", { name: /Container 1/ }),
      events: () => page.getByText("the job is running").first(),
      logs: () => page.getByRole("region", { name: /output/ }).getByText(/\t\d+/).first(),
      settings: () => page.getByText("word-count.yaml"),
    };
    for (const [tab, locator] of Object.entries(seen)) {
      await open(job("word-count", tab));
      await locator().waitFor();
      await assertAccessible(tab);
    }
    await page.setViewportSize({ width: 390, height: 844 });
    for (const fragment of ["#/jobs", job("word-count"), job("word-count", "events"), "#/cluster", "#/maps"]) {
      await open(fragment);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await assertFits(fragment);
    }
  });

  test("the logs are searched across the job", async () => {
    await open(job("word-count", "logs"));
    const log = page.getByRole("region", { name: /output/ });
    await log.getByText(/\t\d+/).first().waitFor();
    await page.getByPlaceholder("Search in all containers").fill("no such word");
    await log.getByText("no line matches").waitFor();
    await page.getByPlaceholder("Search in all containers").fill('"');
    await log.getByText(/\t\d+/).first().waitFor();
  });

  test("the hosts, and dark colours", async () => {
    await open("#/cluster");
    await page.getByRole("region", { name: "host host-1" }).getByText("word-count container 1").waitFor();
    await page.getByRole("button", { name: /theme/ }).click();
    await page.getByRole("button", { name: /theme: light/ }).click();
    await page.getByRole("button", { name: /theme: dark/ }).waitFor();
    await assertAccessible("hosts in dark colours");
    await open("#/maps");
    await page.getByText("There are no maps.").waitFor();
  });

  test("a job is paused, resumed, rescaled and killed, each after a confirmation", async () => {
    await cluster.submit("acted", WORDS);
    await open(job("acted"));
    const actions = page.getByRole("group", { name: "actions on the job" });
    await actions.getByRole("button", { name: "Pause" }).click();
    await dialog().getByRole("button", { name: "Cancel" }).click();
    await dialog().waitFor({ state: "detached" });
    await actions.getByRole("button", { name: "Pause" }).click();
    await assertAccessible("a dialog");
    await dialog().getByRole("button", { name: "Pause" }).click();
    await page.getByRole("heading", { level: 1 }).getByText("paused").waitFor();
    await actions.getByRole("button", { name: "Resume" }).click();
    await dialog().getByRole("button", { name: "Resume" }).click();
    await page.getByRole("heading", { level: 1 }).getByText("running").waitFor();
    await actions.getByRole("button", { name: "Rescale" }).click();
    await dialog().getByRole("spinbutton", { name: "counts" }).fill("3");
    await dialog().getByRole("button", { name: "Rescale" }).click();
    await page.locator('[data-step="counts"]').getByText("×3").waitFor();
    await open(job("acted", "placement"));
    await page.getByRole("button", { name: "restart container 1" }).click();
    await dialog().getByRole("button", { name: "Restart" }).click();
    await page.getByText(/1 restarts/).waitFor();
    await open("#/jobs");
    await row("acted").getByRole("button", { name: "Kill acted" }).click();
    await dialog().getByText("stops for good").waitFor();
    await dialog().getByRole("button", { name: "Kill" }).click();
    await row("acted").waitFor({ state: "detached" });
    await page.getByRole("link", { name: "acted" }).click();
    await page.getByRole("heading", { name: /killed at/ }).waitFor();
  });

  test("a job that ends while it is watched is said to have ended", async () => {
    await cluster.submit("short", WORDS);
    await open(job("short"));
    await page.locator('[data-step="counts"]').waitFor();
    await cluster.ardea("kill", "short", "--yes");
    await page.getByText(/ended at/).waitFor();
    await page.getByRole("link", { name: /record of ended jobs/ }).waitFor();
  });

  test("two people act at once, and the second one is told", async () => {
    await cluster.submit("both", WORDS);
    await open(job("both"));
    await page.getByRole("button", { name: "Kill" }).click();
    await dialog().getByText("stops for good").waitFor();
    await cluster.ardea("kill", "both", "--yes");
    await dialog().getByRole("button", { name: "Kill" }).click();
    await dialog().getByRole("alert").getByText(/ARD-604/).waitFor();
  });

  test("a job with a guarantee has checkpoints and savepoints", async () => {
    const folder = join(cluster.folder, "checkpoints");
    const set = [`guarantee=exactly-once`, `checkpoints.folder=${folder}`, "checkpoints.every=500ms"];
    await cluster.submit("kept", WORDS, ...set.flatMap((it) => ["--set", it]));
    await open(job("kept", "checkpoints"));
    await page.getByText("usable", { exact: true }).first().waitFor();
    await page.getByRole("button", { name: "Verify files" }).click();
    await dialog().getByRole("button", { name: "Check" }).click();
    await dialog().getByText(/verified/).waitFor();
    await dialog().getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Savepoint" }).click();
    await dialog().getByLabel("Folder").fill(join(cluster.folder, "saved"));
    await dialog().getByRole("button", { name: "Write" }).click();
    await dialog().getByText(/is complete/).waitFor();
    await dialog().getByRole("button", { name: "Close" }).click();
    await page.getByRole("button", { name: "Savepoint" }).click();
    await dialog().getByLabel("Folder").fill("relative");
    await dialog().getByRole("button", { name: "Write" }).click();
    await dialog().getByRole("alert").waitFor();
    await cluster.ardea("kill", "kept", "--yes");
  });

  test("a worker that is killed is shown, and its recovery", async () => {
    await cluster.submit("lost", WORDS);
    await open(job("lost", "events"));
    await page.getByText("the job is running").first().waitFor();
    const described = await cluster.json("describe", "lost");
    const pid = Number(described.containers[0].process.replace("pid ", ""));
    process.kill(pid, "SIGKILL");
    await page.getByText(/recovered within/).waitFor();
    await page.getByRole("heading", { name: "Failures" }).waitFor();
    await assertAccessible("failures");
    await cluster.ardea("kill", "lost", "--yes");
  });

  test("hostile names are shown as text", async () => {
    const name = `<img src=x onerror=alert(1)>\u05e9\u05dc\u05d5\u05dd${"x".repeat(60)}`;
    await cluster.submit("hostile", WORDS.replace("name: counts", `name: ${JSON.stringify(name)}`).replace("from: counts", `from: ${JSON.stringify(name)}`));
    await open(job("hostile"));
    const step = page.locator(".node", { hasText: "<img src=x" });
    await step.click();
    await page.getByRole("complementary").getByText("<img src=x").waitFor();
    assert.equal(await page.locator("img[src=x]").count(), 0);
    await assertFits("hostile names");
    await open(`#/jobs/${encodeURIComponent(name.repeat(100))}`);
    await page.getByRole("alert").waitFor();
    await assertFits("a name of 9 KB");
    assert.equal(await page.locator("img[src=x]").count(), 0);
    await cluster.ardea("kill", "hostile", "--yes");
  });

  test("the step with a skewed key is named", async () => {
    await cluster.submit("skewed", SKEWED);
    await open(job("skewed"));
    await page.locator(".slow-banner.bad").getByRole("link", { name: "counts" }).click();
    await page.getByText(/Skewed: instance \d gets 100 %/).waitFor();
    const why = page.getByRole("region", { name: "why" });
    await why.getByText("skewed key").waitFor();
    await why.getByText(/more instances do not help/).waitFor();
    await why.getByRole("link", { name: /counts#\d/ }).waitFor();
    await assertAccessible("why");
    await page.setViewportSize({ width: 390, height: 844 });
    await assertFits("why");
    await cluster.ardea("kill", "skewed", "--yes");
  });

  test("a thousand dead letters with hostile text are shown as text, page by page", async () => {
    const port = await freePort();
    await cluster.ardea("submit", "sensors", "--", "--listen", `127.0.0.1:${port}`);
    const long = "L".repeat(10_240);
    const lines = ["<script>alert(1)</script>", "\u202eright to left \u05e9\u05dc\u05d5\u05dd", long];
    for (let number = lines.length; number < 1_000; number += 1) lines.push(`<img src=x onerror=alert(${number})>`);
    await sendLines(port, lines);
    const { vertices } = await cluster.json("describe", "sensors");
    await page.goto(`${cluster.url}/ui/${job("sensors")}?step=${encodeURIComponent(vertices[0].name)}`);
    const letters = page.getByRole("region", { name: "dead letters" });
    await letters.getByText("<script>alert(1)</script>").first().waitFor();
    await letters.getByText(/^LLLL/).first().waitFor();
    await letters.getByText("right to left").first().waitFor();
    assert.equal(await letters.getByRole("listitem").count(), 20);
    await letters.getByRole("button", { name: "More than 20" }).click();
    await letters.getByRole("button", { name: "More than 40" }).waitFor();
    const saved = page.waitForEvent("download");
    await letters.getByRole("button", { name: "Save 40 letters" }).click();
    const text = readFileSync(await (await saved).path(), "utf8");
    assert.equal(JSON.parse(text.split("\n")[0]).raw, "<script>alert(1)</script>");
    assert.equal(await page.locator("img[src=x], pre script").count(), 0);
    await assertAccessible("dead letters");
    await page.setViewportSize({ width: 390, height: 844 });
    await assertFits("dead letters");
    let count = 0;
    for (let after = ""; after !== null; ) {
      const place = `${cluster.url}/v1/jobs/sensors/dead-letters?limit=300${after && `&after=${after}`}`;
      const read = await (await fetch(place)).json();
      assert.ok(read.letters.length <= 300);
      count += read.letters.length;
      after = read.next;
    }
    assert.equal(count, 1_000);
    await cluster.ardea("kill", "sensors", "--yes");
  });

  test("a job is submitted from a file, and upgraded", async () => {
    const file = (yaml, name = "sent.yaml") => ({ name, mimeType: "application/yaml", buffer: Buffer.from(yaml) });
    await open("#/jobs");
    await page.getByRole("button", { name: "Submit a job" }).click();
    await assertAccessible("a submission");
    await dialog().getByLabel(/Topology/).setInputFiles(file("name: ["));
    await dialog().getByRole("button", { name: "Submit" }).click();
    await dialog().getByRole("alert").getByText(/ARD-102/).waitFor();
    await dialog().getByLabel(/Topology/).setInputFiles(file(WORDS.replace("NAME", "sent")));
    const folder = join(cluster.folder, "sent-checkpoints");
    await dialog().getByLabel(/Settings/).fill(`guarantee=exactly-once\ncheckpoints.folder=${folder}\ncheckpoints.every=500ms`);
    await dialog().getByRole("button", { name: "Submit" }).click();
    await page.waitForURL(/#\/jobs\/sent\//);
    await page.getByRole("heading", { level: 1 }).getByText("running").waitFor();
    await open(job("sent", "checkpoints"));
    await page.getByText("usable", { exact: true }).first().waitFor();
    await page.getByRole("button", { name: "Upgrade" }).click();
    const next = WORDS.replace("NAME", "sent").replace("rate: 500", "rate: 600");
    await dialog().getByLabel(/Topology/).setInputFiles(file(next));
    await dialog().getByRole("button", { name: "Upgrade" }).click();
    await dialog().waitFor({ state: "detached" });
    await page.getByText(/Upgrade:/).waitFor();
    await cluster.ardea("kill", "sent", "--yes");
  });

  test("the page says that the server is gone, and recovers", async () => {
    await open("#/jobs");
    await row("word-count").waitFor();
    await cluster.stopHosts();
    await page.getByText("No connection.").waitFor();
    await row("word-count").waitFor();
    await cluster.startHosts();
    await page.getByText("No connection.").waitFor({ state: "detached" });
    await row("word-count").getByText("running").waitFor();
  });

  test("another site's page can command nothing", async () => {
    const port = await freePort();
    const other = await context.newPage();
    await other.route(`http://127.0.0.1:${port}/`, (route) => route.fulfill({ body: "<p>other</p>", contentType: "text/html" }));
    await other.goto(`http://127.0.0.1:${port}/`);
    await other.evaluate(
      (url) => fetch(`${url}/v1/jobs/word-count/pause`, { method: "POST", mode: "no-cors" }).catch(() => undefined),
      cluster.url,
    );
    const { phase } = await cluster.json("describe", "word-count");
    assert.equal(phase, "running");
  });
});

describe("a cluster of two hosts with a token", { timeout: 300_000 }, () => {
  const SECRET = "sesame-open-0123456789";
  let cluster;

  before(async () => {
    cluster = await Cluster.start({ token: SECRET, hosts: 2 });
    await cluster.ardea("submit", WORD_COUNT);
  });

  after(async () => {
    await cluster?.stop();
  });

  test("the page asks for the token, refuses a wrong one, and keeps it in the tab", async () => {
    await page.goto(`${cluster.url}/ui/`);
    await dialog().getByLabel("Token").fill("wrong");
    await dialog().getByRole("button", { name: "Use the token" }).click();
    await dialog().getByLabel("Token").fill(SECRET);
    await dialog().getByRole("button", { name: "Use the token" }).click();
    await row("word-count").waitFor();
    assert.equal(await page.evaluate(() => localStorage.getItem("ardea.token")), null);
    await page.reload();
    await row("word-count").waitFor();
    await page.getByRole("button", { name: "Forget token" }).click();
    await dialog().getByLabel("Token").waitFor();
  });

  test("every host shows and controls the jobs that another one leads", async () => {
    await context.addInitScript((secret) => sessionStorage.setItem("ardea.token", secret), SECRET);
    const { hosts } = await cluster.json("cluster", "status");
    for (const host of hosts) {
      await page.goto(`${host.api}/ui/${job("word-count")}`);
      await page.locator('[data-step="counts"]').getByText(/in .*k/).waitFor();
      await page.getByRole("group", { name: "actions on the job" }).getByRole("button", { name: "Pause" }).click();
      await dialog().getByRole("button", { name: "Pause" }).click();
      await page.getByRole("heading", { level: 1 }).getByText("paused").waitFor();
      await page.getByRole("button", { name: "Resume" }).click();
      await dialog().getByRole("button", { name: "Resume" }).click();
      await page.getByRole("heading", { level: 1 }).getByText("running").waitFor();
    }
  });
});

test("a run in its own process has the page", { timeout: 120_000 }, async () => {
  const port = await freePort();
  const running = start(".", "run", WORD_COUNT, `--ui=127.0.0.1:${port}`, "--quiet");
  try {
    for (;;) {
      const is = await fetch(`http://127.0.0.1:${port}/v1/jobs`).catch(() => null);
      if (is !== null) break;
      await new Promise((done) => setTimeout(done, 100));
    }
    await page.goto(`http://127.0.0.1:${port}/`);
    await row("word-count").getByRole("link").click();
    await page.locator('[data-step="counts"]').getByText(/in .*k/).waitFor();
    await page.locator('[data-step="counts"]').click();
    await page.getByRole("complementary").getByText(/k\/s/).first().waitFor();
    await page.getByRole("region", { name: "why" }).getByText(/No figure shows a problem|severity/).first().waitFor();
    assert.equal(await page.getByRole("button", { name: "Kill" }).count(), 0);
    await assertAccessible("a run in its own process");
  } finally {
    running.kill("SIGKILL");
  }
});
