// Histograms of latencies over time, from the growth of cumulative buckets.

import type { SeriesView } from "../api/types";

export interface HeatMap {
  /** Times of the columns, in milliseconds since 1970. */
  times: number[];
  /** Upper bounds of the rows in seconds, ascending; the last is infinite. */
  bounds: number[];
  /** Number of measurements by column and row. */
  counts: number[][];
}

/** Adds up the series of all instances. */
export function heatMap(series: SeriesView[]): HeatMap {
  const bounds = new Set<number>();
  const columns = new Map<number, Map<number, number>>();
  for (const one of series) {
    const bound = boundOf(one.labels["le"] ?? "");
    if (bound === null) continue;
    bounds.add(bound);
    for (const point of one.points) {
      const column = columns.get(point.at_ms) ?? new Map<number, number>();
      columns.set(point.at_ms, column);
      column.set(bound, (column.get(bound) ?? 0) + (point.value ?? 0));
    }
  }
  const sorted = [...bounds].sort((one, other) => one - other);
  const times = [...columns.keys()].sort((one, other) => one - other);
  const counts = times.map((at) => {
    let below = 0;
    return sorted.map((bound) => {
      const cumulative = Math.max(columns.get(at)?.get(bound) ?? below, below);
      const count = cumulative - below;
      below = cumulative;
      return count;
    });
  });
  return { times, bounds: sorted, counts };
}

function boundOf(text: string): number | null {
  if (text === "+Inf" || text === "inf") return Infinity;
  const bound = Number(text);
  return text === "" || Number.isNaN(bound) ? null : bound;
}

/** Estimates a quantile from counts by row, within a bucket by interpolation; `null` without counts. */
export function quantile(rank: number, bounds: number[], counts: number[]): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const wanted = rank * total;
  let below = 0;
  for (let row = 0; row < bounds.length; row += 1) {
    const count = counts[row]!;
    if (count > 0 && below + count >= wanted) {
      const lower = row === 0 ? 0 : bounds[row - 1]!;
      const upper = bounds[row]!;
      if (upper === Infinity) return lower;
      return lower + (upper - lower) * Math.max((wanted - below) / count, 0);
    }
    below += count;
  }
  return null;
}

/** Returns the counts of all columns together. */
export function total(map: HeatMap): number[] {
  return map.bounds.map((_, row) => map.counts.reduce((sum, column) => sum + column[row]!, 0));
}
