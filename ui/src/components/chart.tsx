// A line chart over time, with a logarithmic or linear scale.

import { useRef } from "preact/hooks";
import { time } from "../format";
import { useSize } from "../live";

export interface Line {
  label: string;
  tone: string;
  points: { at: number; value: number | null }[];
}

const MIN_WIDTH = 280;
const HEIGHT = 180;
const LEFT = 70;
const BOTTOM = 22;
const TOP = 8;

export function Chart(props: {
  label: string;
  lines: Line[];
  format: (value: number) => string;
  isLogarithmic?: boolean;
}) {
  const figure = useRef<HTMLElement>(null);
  const width = Math.max(useSize(figure).width - 26, MIN_WIDTH);
  const values = props.lines.flatMap((line) => line.points.map((point) => point.value)).filter((it) => it !== null);
  const times = props.lines.flatMap((line) => line.points.map((point) => point.at));
  if (values.length === 0) {
    return (
      <figure class="chart" ref={figure}>
        <figcaption>{props.label}</figcaption>
        <p class="none">no measurements in this time</p>
      </figure>
    );
  }
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const isLog = props.isLogarithmic === true && values.some((value) => value > 0);
  const positive = values.filter((value) => value > 0);
  const low = isLog ? Math.min(...positive) / 1.5 : 0;
  const high = Math.max(...values, isLog ? low * 10 : 1e-9) * (isLog ? 1.5 : 1.1);
  const scale = (value: number) =>
    isLog ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  const x = (at: number) => LEFT + ((width - LEFT - 8) * (at - first)) / Math.max(last - first, 1);
  const y = (value: number) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - scale(value));
  const marks = [0, 0.5, 1].map((share) => (isLog ? low * (high / low) ** share : low + (high - low) * share));
  const latest = props.lines.map((line) => {
    const value = line.points[line.points.length - 1]?.value ?? null;
    return `${line.label} ${value === null ? "–" : props.format(value)}`;
  });
  return (
    <figure class="chart" ref={figure}>
      <figcaption>
        {props.label}
        {props.lines.map((line, index) => (
          <span key={line.label} class="key">
            <i class={`stroke ${line.tone}`} /> {latest[index]}
          </span>
        ))}
      </figcaption>
      <svg width={width} height={HEIGHT} role="img" aria-label={`${props.label}; now ${latest.join(", ")}`}>
        {marks.map((mark) => (
          <g key={mark} class="mark">
            <line x1={LEFT} x2={width - 8} y1={y(mark)} y2={y(mark)} />
            <text x={LEFT - 8} y={y(mark) + 4} text-anchor="end">
              {props.format(mark)}
            </text>
          </g>
        ))}
        <text x={LEFT} y={HEIGHT - 5}>
          {time(first)}
        </text>
        <text x={width - 8} y={HEIGHT - 5} text-anchor="end">
          {time(last)}
        </text>
        {props.lines.map((line) => (
          <path key={line.label} class={`line stroke ${line.tone}`} d={pathOf(line, x, y)} />
        ))}
      </svg>
    </figure>
  );
}

function pathOf(line: Line, x: (at: number) => number, y: (value: number) => number): string {
  let isOpen = false;
  let path = "";
  for (const { at, value } of line.points) {
    if (value === null) {
      isOpen = false;
      continue;
    }
    path += `${isOpen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A single measurement is shown as a dot.
    if (!isOpen) path += "h0.01";
    isOpen = true;
  }
  return path;
}
