// A real cluster for the tests, in a folder of its own, and the browser that shows its page.

import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const run = promisify(execFile);
const ROOT = resolve(import.meta.dirname, "..", "..");
const ARDEA = process.env.ARDEA ?? join(ROOT, "target/debug/ardea");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const WORD_COUNT = join(ROOT, "examples/word-count.yaml");

/** Returns a port that is free now. */
export function freePort() {
  return new Promise((done, failed) => {
    const server = createServer();
    server.on("error", failed);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/** A cluster of this machine, whose files are in a temporary folder. */
export class Cluster {
  static async start({ token = null, hosts = 1 } = {}) {
    const cluster = new Cluster();
    cluster.folder = mkdtempSync(join(tmpdir(), "ardea-ui-"));
    cluster.port = await freePort();
    cluster.hosts = hosts;
    let config = `[cluster]\nname = "ui-test"\nport = ${cluster.port}\n`;
    if (token !== null) {
      const file = join(cluster.folder, "token");
      writeFileSync(file, token, { mode: 0o600 });
      config += `token_file = ${JSON.stringify(file)}\n`;
    }
    writeFileSync(join(cluster.folder, "ardea.toml"), config);
    await cluster.startHosts();
    return cluster;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Runs the command line, and returns its standard output. */
  async ardea(...words) {
    const env = { ...process.env, HOME: this.folder, XDG_RUNTIME_DIR: this.folder };
    const { stdout } = await run(ARDEA, words, { cwd: this.folder, env, maxBuffer: 1 << 26 });
    return stdout;
  }

  startHosts() {
    return this.ardea("cluster", "start", "--workers", String(this.hosts));
  }

  stopHosts() {
    return this.ardea("cluster", "stop");
  }

  /** Writes a topology file, and submits it. */
  async submit(name, yaml, ...options) {
    const file = join(this.folder, `${Math.random().toString(36).slice(2)}.yaml`);
    writeFileSync(file, yaml.replace("NAME", JSON.stringify(name)));
    await this.ardea("submit", file, ...options);
  }

  async json(...words) {
    return JSON.parse(await this.ardea("--json", ...words));
  }

  async stop() {
    const jobs = await this.json("list").catch(() => []);
    for (const job of jobs) await this.ardea("kill", job.name, "--yes").catch(() => undefined);
    await this.stopHosts().catch(() => undefined);
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Starts a process of the command line that runs until it is ended. */
export function start(folder, ...words) {
  return spawn(ARDEA, words, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
}

export function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS });
}

/** With PAGE=FOLDER the page's files come from there, so that a changed page needs no new program. */
export async function serveSources(context) {
  const folder = process.env.PAGE;
  if (folder === undefined) return;
  await context.route(/\/ui\/(app\.js|style\.css)$/, (route) =>
    route.fulfill({ path: join(folder, new URL(route.request().url()).pathname.split("/").pop()) }),
  );
}

/** A job of random words: fast enough to show figures, slow enough to leave the machine idle. */
export const WORDS = `
name: NAME
spouts:
  - name: words
    component: words
    parallelism: 2
    settings: { rate: 500, vocabulary: 100 }
bolts:
  - name: counts
    component: count
    parallelism: 2
    inputs: [{ from: words, grouping: fields, fields: [word] }]
  - name: out
    component: print
    inputs: [{ from: counts, grouping: global }]
`;

/** A job with three keys for four instances, one of which is skewed, and sources without a limit. */
export const SKEWED = `
name: NAME
spouts:
  - name: words
    component: words
    parallelism: 1
    settings: { vocabulary: 1 }
bolts:
  - name: counts
    component: count
    parallelism: 4
    inputs: [{ from: words, grouping: fields, fields: [word] }]
  - name: out
    component: print
    inputs: [{ from: counts, grouping: global }]
`;
