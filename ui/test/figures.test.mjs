// Tests of the page's computations, without a browser.

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { build } from "esbuild";

/** Compiles and loads a source file. */
async function load(path) {
  const entry = join(import.meta.dirname, "..", "src", path);
  const built = await build({ entryPoints: [entry], bundle: true, write: false, format: "esm" });
  return import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);
}

const { layout } = await load("graph/layout.ts");
const { heatMap, quantile, total } = await load("job/histogram.ts");
const figures = await load("job/figures.ts");
const { short, seconds, shortened } = await load("format.ts");
const { parseRoute, jobLink } = await load("route.ts");
const { recoveriesOf } = await load("job/timeline.tsx");
const { sharesOf } = await load("job/checkpoints.tsx");
const { argumentsOf, settingsOf } = await load("job/program.tsx");

const SIZES = { along: 100, across: 40, layerGap: 20, nodeGap: 10 };

test("a step stands after its producers, and no two steps overlap", () => {
  const names = Array.from({ length: 200 }, (_, index) => `v${index}`);
  const edges = [];
  for (let index = 1; index < names.length; index += 1) {
    edges.push({ from: names[Math.floor(index / 3)], to: names[index] });
    if (index > 10) edges.push({ from: names[index - 10], to: names[index] });
  }
  const { nodes, edges: placed } = layout(names, edges, SIZES, false);
  const at = new Map(nodes.map((node) => [node.name, node]));
  for (const { from, to } of edges) assert.ok(at.get(from).x < at.get(to).x, `${from} ${to}`);
  for (const one of nodes) {
    for (const other of nodes) {
      if (one === other || Math.abs(one.x - other.x) >= 100) continue;
      assert.ok(Math.abs(one.y - other.y) >= 40 - 1e-6, `${one.name} ${other.name}`);
    }
  }
  assert.equal(placed.length, edges.length);
});

test("a cycle, a loop and an unknown step do not stop the layout", () => {
  const edges = [
    { from: "a", to: "b" },
    { from: "b", to: "c" },
    { from: "c", to: "a" },
    { from: "c", to: "c" },
    { from: "x", to: "a" },
  ];
  const { nodes, edges: placed } = layout(["a", "b", "c"], edges, SIZES, true);
  assert.equal(nodes.length, 3);
  assert.equal(placed.length, 3);
  assert.equal(layout(["alone"], [], SIZES, false).nodes.length, 1);
});

test("cumulative buckets of several instances become counts and quantiles", () => {
  const series = (le, ...values) => ({ labels: { le }, points: values.map((value, at) => ({ at_ms: at, value })) });
  const map = heatMap([series("0.1", 5, 0), series("+Inf", 20, 2), series("0.2", 15, 0), series("0.1", 5, 0), series("0.2", 5, 0), series("+Inf", 5, 0)]);
  assert.deepEqual(map.bounds, [0.1, 0.2, Infinity]);
  assert.deepEqual(map.counts, [[10, 10, 5], [0, 0, 2]]);
  assert.deepEqual(total(map), [10, 10, 7]);
  assert.equal(quantile(0.5, [0.1, 0.2], [10, 10]), 0.1);
  assert.ok(Math.abs(quantile(0.75, [0.1, 0.2], [10, 10]) - 0.15) < 1e-9);
  assert.equal(quantile(1, [0.1, Infinity], [1, 1]), 0.1);
  assert.equal(quantile(0.5, [0.1], [0]), null);
});

test("the rate of an edge is that of the end that has no other edge", () => {
  const load = new Map([
    ["a", { records_out_per_s: 10 }],
    ["b", { records_out_per_s: 7 }],
    ["c", { records_in_per_s: 17 }],
    ["d", { records_in_per_s: 3 }],
  ]);
  const [ac, bc, bd] = [{ from: "a", to: "c" }, { from: "b", to: "c" }, { from: "b", to: "d" }];
  const edges = [ac, bc, bd];
  assert.deepEqual(edges.map((edge) => figures.edgeRate(edge, edges, load)), [10, null, 3]);
});

test("the step for which most others wait is the slow one", () => {
  const vertex = (name, busy, waits_for = null, backpressure = 0) => ({ vertex: name, busy, busy_cpu: busy, backpressure, waits_for, is_failing: false });
  const top = { vertices: [vertex("a", 0.95, "c", 0.8), vertex("b", 0.2, "c", 0.8), vertex("c", 0.7), vertex("d", 0.93)] };
  assert.deepEqual(figures.slowSteps(top).map((it) => it.step.vertex), ["c", "d"]);
  assert.deepEqual(figures.slowSteps(null), []);
});

test("a source that waits for its input is not slow, and one that computes is", () => {
  const source = (busy_cpu) => ({ vertex: "in", busy: 1.01, busy_cpu, backpressure: 0, waits_for: null, is_failing: false, records_in_per_s: null });
  assert.deepEqual(figures.slowSteps({ vertices: [source(0.02)] }), []);
  assert.equal(figures.slowSteps({ vertices: [source(0.9)] }).length, 1);
});

test("rates of instances are the growth of their counters, and skew is named", () => {
  const sample = (instance, value, at) => ({
    name: "ardea_records_in_total",
    labels: { vertex: "v", instance: String(instance), container: "1" },
    kind: "counter",
    value,
    at_ms: at,
  });
  let samples = figures.nextSamples(figures.NO_SAMPLES, [sample(0, 100, 0), sample(1, 100, 0)]);
  assert.equal(figures.instances(samples)[0].input, null);
  samples = figures.nextSamples(samples, [sample(0, 1_100, 2_000), sample(1, 200, 2_000)]);
  const found = figures.instances(samples);
  assert.deepEqual(found.map((it) => it.input), [500, 50]);
  const skew = figures.skewOf(found);
  assert.equal(skew.instance, 0);
  assert.ok(skew.factor > 1.8);
  // A restart lets a counter begin at zero.
  samples = figures.nextSamples(samples, [sample(0, 5, 3_000), sample(1, 300, 3_000)]);
  assert.deepEqual(figures.instances(samples).map((it) => it.input), [null, 100]);
});

test("the instance that holds back the watermark is named", () => {
  const of = (...watermarks) => watermarks.map((watermark, instance) => ({ instance, watermark }));
  assert.deepEqual(figures.watermarkHolder(of(100, 40, null)), { instance: 1, behind: 60 });
  assert.equal(figures.watermarkHolder(of(100, 99.5)), null);
});

test("a recovery lasts from a loss until the job runs again", () => {
  const notes = [
    [1, "the job is running"],
    [10, "the process of worker 1.7 was ended by signal 9"],
    [11, "worker 1.7 was given up: its process has ended"],
    [30, "the job is running"],
    [40, "worker 1.8 has sent no heartbeat for a while"],
  ].map(([at_ms, text]) => ({ at_ms, text }));
  const found = recoveriesOf(notes);
  assert.deepEqual(found.map((it) => [it.from, it.to]), [[40, null], [10, 30]]);
});

test("numbers are short", () => {
  assert.deepEqual([0, 7, 12.34, 999, 20_050, 3.2e6, null].map(short), ["0", "7", "12", "999", "20.1 k", "3.20 M", "–"]);
  assert.deepEqual([0.0005, 0.25, 90, null].map(seconds), ["500 µs", "250 ms", "1 min 30 s", "–"]);
  assert.equal(shortened("🦀🦀🦀", 2), "🦀…");
});

test("any name of a job makes a link that leads back to it", () => {
  for (const name of ["a/b", "ü?#%", "<script>", "."]) {
    const route = parseRoute(jobLink(name, "logs", "x/y"));
    assert.deepEqual([route.job, route.tab, route.step], [name, "logs", "x/y"]);
  }
  assert.equal(parseRoute("#/%E0%A4%A").view, "jobs");
});

test("arguments and settings of a program are read from text", () => {
  assert.deepEqual(argumentsOf(` a --rate 5 "two words" 'x y' it's `), ["a", "--rate", "5", "two words", "x y", "it's"]);
  assert.deepEqual(argumentsOf(""), []);
  assert.deepEqual(settingsOf("a.b = c=d\n\n# note\ne="), { "a.b": "c=d", e: "" });
  assert.throws(() => settingsOf("no setting"));
});

test("the share of checkpoints is known where both measurements are", () => {
  const at = (at, value) => ({ at, value });
  const shares = sharesOf([at(1, 0.5), at(2, 3), at(3, 1), at(4, null)], [at(1, 1), at(2, 2), at(4, 1)]);
  assert.deepEqual(shares, [at(1, 0.5), at(2, 1), at(3, null), at(4, null)]);
});
