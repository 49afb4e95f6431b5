// The latency of a job: percentiles, and a heat map over time.

import { useEffect, useRef, useState } from "preact/hooks";
import { segment } from "../api/client";
import type { MetricsRange, Plans, TopView } from "../api/types";
import { ErrorBox, Loading, Name } from "../components/basics";
import { Chart } from "../components/chart";
import { seconds, shortened, time } from "../format";
import { useNow, useResource } from "../live";
import { sinksOf } from "./figures";
import { heatMap, type HeatMap, quantile, total } from "./histogram";

const RANKS = [
  [0.5, "50 %"],
  [0.9, "90 %"],
  [0.99, "99 %"],
  [0.999, "99.9 %"],
  [0.9999, "99.99 %"],
] as const;
const SPANS = [
  [60, "1 min"],
  [600, "10 min"],
  [3_600, "1 h"],
] as const;

export function Latency({ job, plans, top }: { job: string; plans: Plans; top: TopView | null }) {
  const sinks = sinksOf(plans);
  const slowest = sinks.reduce<string | null>((worst, sink) => {
    const of = (name: string | null) => top?.vertices.find((it) => it.vertex === name)?.latency_p99_s ?? -1;
    return worst === null || of(sink) > of(worst) ? sink : worst;
  }, null);
  const [first] = useState(slowest);
  const [chosen, setChosen] = useState<string | null>(null);
  const [span, setSpan] = useState(600);
  const step = chosen ?? first ?? sinks[0] ?? "";
  const now = useNow(5_000);
  const from = Math.floor((now - span * 1_000) / 5_000) * 5_000;
  const path = step === "" ? null : `/jobs/${segment(job)}/metrics/range`;
  const range = useResource<MetricsRange>(path, { name: "ardea_latency_seconds_bucket", vertex: step, from_ms: from });
  const map = range.data === null ? null : heatMap(range.data.series);
  return (
    <section>
      <div class="controls">
        <label>
          From the sources to{" "}
          <select value={step} onChange={(event) => setChosen(event.currentTarget.value)}>
            {plans.logical.vertices.map((it) => (
              <option key={it.name} value={it.name}>
                {shortened(it.name, 60)}
                {sinks.includes(it.name) ? " (end to end)" : ""}
              </option>
            ))}
          </select>
        </label>
        <span role="group" aria-label="time span" class="segmented">
          {SPANS.map(([value, label]) => (
            <button key={value} type="button" aria-pressed={span === value} onClick={() => setSpan(value)}>
              {label}
            </button>
          ))}
        </span>
      </div>
      {range.error !== null && <ErrorBox error={range.error} />}
      {map === null && range.error === null && <Loading what="the latencies" />}
      {map !== null && (
        <>
          <dl class="figures">
            {RANKS.map(([rank, label]) => (
              <div key={rank} class="figure">
                <dt>{label}</dt>
                <dd>{seconds(quantile(rank, map.bounds, total(map)))}</dd>
              </div>
            ))}
          </dl>
          <Heat map={map} step={step} />
          <Chart
            label="Percentiles"
            format={seconds}
            isLogarithmic
            lines={[
              { label: "50 %", tone: "good", points: series(map, 0.5) },
              { label: "99 %", tone: "warn", points: series(map, 0.99) },
              { label: "99.9 %", tone: "bad", points: series(map, 0.999) },
            ]}
          />
          <p class="hint">
            Measured by markers that each source sends ten times a second through the queues of the records. Waits in windows do
            not count.
          </p>
        </>
      )}
    </section>
  );
}

function series(map: HeatMap, rank: number) {
  return map.times.map((at, column) => ({ at, value: quantile(rank, map.bounds, map.counts[column]!) }));
}

const ROW = 14;
const LEFT = 70;

/** The number of measurements by time and latency, as colours. */
function Heat({ map, step }: { map: HeatMap; step: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = shownRows(map);
  const height = Math.max(rows.length, 1) * ROW;
  useEffect(() => {
    const element = canvas.current;
    if (element !== null) draw(element, map, rows);
  });
  const [first, last] = [map.times[0], map.times[map.times.length - 1]];
  const p99 = quantile(0.99, map.bounds, total(map));
  return (
    <figure class="heat">
      <figcaption>
        Latency over time to <Name text={step} most={60} />
      </figcaption>
      <div class="heat-rows" aria-hidden="true" style={{ height: `${height}px` }}>
        {rows.map((row, index) => (
          <span key={row} style={{ top: `${(rows.length - 1 - index) * ROW}px` }}>
            {index % 2 === 0 || rows.length < 8 ? label(map, row) : ""}
          </span>
        ))}
      </div>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`heat map of latencies; the 99th percentile is ${seconds(p99)}`}
        style={{ height: `${height}px`, marginLeft: `${LEFT}px` }}
      />
      <div class="heat-times" style={{ marginLeft: `${LEFT}px` }}>
        <span>{first === undefined ? "" : time(first)}</span>
        <span>{last === undefined ? "" : time(last)}</span>
      </div>
    </figure>
  );
}

function label(map: HeatMap, row: number): string {
  const bound = map.bounds[row]!;
  return bound === Infinity ? `> ${seconds(map.bounds[row - 1] ?? 0)}` : seconds(bound);
}

/** Returns the rows from the first to the last with measurements, and one more at each side. */
function shownRows(map: HeatMap): number[] {
  const used = total(map)
    .map((count, row) => (count > 0 ? row : -1))
    .filter((row) => row >= 0);
  const first = Math.max((used[0] ?? 0) - 1, 0);
  const last = Math.min((used[used.length - 1] ?? 5) + 1, map.bounds.length - 1);
  return Array.from({ length: Math.max(last - first + 1, 0) }, (_, index) => first + index);
}

function draw(canvas: HTMLCanvasElement, map: HeatMap, rows: number[]): void {
  const context = canvas.getContext("2d");
  const columns = map.times.length;
  if (context === null || columns === 0 || rows.length === 0) return;
  const density = devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * density), Math.round(canvas.clientHeight * density)];
  canvas.width = width;
  canvas.height = height;
  const style = getComputedStyle(canvas);
  const most = Math.max(...map.counts.map((column) => Math.max(...column)), 1);
  context.fillStyle = style.getPropertyValue("--heat-zero").trim();
  context.fillRect(0, 0, width, height);
  context.fillStyle = style.getPropertyValue("--heat").trim();
  const cell = { width: width / columns, height: height / rows.length };
  map.counts.forEach((column, at) => {
    rows.forEach((row, index) => {
      const count = column[row]!;
      if (count <= 0) return;
      // Rare measurements have to be seen: they are the outliers.
      context.globalAlpha = 0.25 + 0.75 * (Math.log(1 + count) / Math.log(1 + most));
      const top = Math.round(height - (index + 1) * cell.height);
      const left = Math.round(at * cell.width);
      context.fillRect(left, top, Math.max(Math.round((at + 1) * cell.width) - left - 1, 1), Math.ceil(cell.height) - 1);
    });
  });
  context.globalAlpha = 1;
}
