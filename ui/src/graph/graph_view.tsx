// The graph of a job: laid out, zoomed, coloured by load.

import { Component, type ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LogicalEdge, Plans, TopView, VertexTop } from "../api/types";
import { busyTone } from "../components/basics";
import { percent, rate, seconds, short, shortened } from "../format";
import { useSize } from "../live";
import { edgeRate, loadOf, type SlowStep } from "../job/figures";
import { layout, type Layout, type Point, type Sizes } from "./layout";

const NODE = { width: 196, height: 78 };
const MIN_SCALE = 0.05;
const MAX_SCALE = 2.5;
/** Least scale of the first view, at which names can be read. */
const READABLE = 0.55;
const STEP = 1.25;
/** Scale below which only names and colours are shown. */
const FAR = 0.4;

interface View {
  scale: number;
  x: number;
  y: number;
}

export function GraphView(props: {
  plans: Plans;
  top: TopView | null;
  slow: SlowStep[];
  selected: string | null;
  onSelect: (step: string) => void;
}) {
  const { plans, top, slow } = props;
  const frame = useRef<HTMLDivElement>(null);
  const size = useSize(frame);
  const edges = plans.logical.edges;
  const isVertical = useMemo(() => size.width > 0 && wantsVertical(plans, size), [plans, size]);
  const placed = useMemo(() => layoutOf(plans, isVertical), [plans, isVertical]);
  const focus = slow[0]?.step.vertex ?? null;
  const zoom = useZoom(frame, size, placed, focus);
  const load = loadOf(top);
  const parallelism = new Map(plans.logical.vertices.map((it) => [it.name, it.parallelism]));
  const slowNames = new Set(slow.map((it) => it.step.vertex));
  const isReady = size.width > 0;
  const { view } = zoom;
  const isShown = (point: Point, margin: number) => {
    const [x, y] = [point.x * view.scale + view.x, point.y * view.scale + view.y];
    const around = margin * view.scale;
    return x > -around && y > -around && x < size.width + around && y < size.height + around;
  };
  return (
    <div class="graph" ref={frame}>
      <svg role="group" aria-label="graph of the job" width="100%" height="100%">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0 8 4 0 8z" class="arrow" />
          </marker>
        </defs>
        {isReady && (
          <g
            class={view.scale < FAR ? "far" : ""}
            transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}
          >
            {placed.edges.map(({ edge, points }) => (
              <Still key={edgeKey(edge)} isMoving={points.some((point) => isShown(point, NODE.width * 2))}>
                <Edge edge={edge} points={points} isVertical={isVertical} edges={edges} load={load} />
              </Still>
            ))}
            {placed.nodes.map((node) => (
              <Still key={node.name} isMoving={isShown(node, NODE.width)}>
                <Node
                  name={node.name}
                  at={node}
                  load={load.get(node.name) ?? null}
                  parallelism={parallelism.get(node.name) ?? 0}
                  isSlow={slowNames.has(node.name)}
                  isSelected={props.selected === node.name}
                  onSelect={() => props.onSelect(node.name)}
                />
              </Still>
            ))}
          </g>
        )}
      </svg>
      <div class="zoom" role="group" aria-label="zoom">
        <button type="button" aria-label="zoom in" onClick={() => zoom.by(STEP)}>
          +
        </button>
        <button type="button" aria-label="zoom out" onClick={() => zoom.by(1 / STEP)}>
          −
        </button>
        <button type="button" onClick={zoom.fit}>
          Fit
        </button>
      </div>
      <Legend />
    </div>
  );
}

/** A part that is drawn anew only while it is within the frame: graphs may have many steps. */
class Still extends Component<{ isMoving: boolean; children: ComponentChildren }> {
  override shouldComponentUpdate(next: { isMoving: boolean }): boolean {
    return next.isMoving;
  }

  override render() {
    return this.props.children;
  }
}

function Legend() {
  return (
    <div class="legend" aria-hidden="true">
      <span>
        <i class="fill good" /> busy
      </span>
      <span>
        <i class="fill bad" /> busy ≥ 90 %
      </span>
      <span>
        <i class="fill blocked" /> blocked (backpressure)
      </span>
    </div>
  );
}

function layoutOf(plans: Plans, isVertical: boolean): Layout<LogicalEdge> {
  const sizes: Sizes = isVertical
    ? { along: NODE.height, across: NODE.width, layerGap: 58, nodeGap: 26 }
    : { along: NODE.width, across: NODE.height, layerGap: 92, nodeGap: 26 };
  return layout(
    plans.logical.vertices.map((it) => it.name),
    plans.logical.edges,
    sizes,
    isVertical,
  );
}

/** Chooses the direction in which the graph is shown larger. */
function wantsVertical(plans: Plans, size: { width: number; height: number }): boolean {
  const scales = [false, true].map((isVertical) => {
    const { width, height } = layoutOf(plans, isVertical);
    return Math.min(size.width / width, size.height / height);
  });
  return scales[1]! > scales[0]! * 1.05;
}

function edgeKey(edge: LogicalEdge): string {
  return `${edge.from} ${edge.output} ${edge.to} ${edge.input}`;
}

function Node(props: {
  name: string;
  at: Point;
  load: VertexTop | null;
  parallelism: number;
  isSlow: boolean;
  isSelected: boolean;
  onSelect: () => void;
}) {
  const { name, at, load, isSlow } = props;
  const busy = load?.busy ?? null;
  const blocked = load?.backpressure ?? null;
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    props.onSelect();
  };
  const inner = NODE.width - 24;
  const tone = load?.is_failing === true ? "bad" : busyTone(busy);
  const about = `busy ${percent(busy)}, blocked ${percent(blocked)}${isSlow ? ", holds the job up" : ""}`;
  return (
    <g
      class={`node ${tone}${isSlow ? " slow" : ""}${props.isSelected ? " selected" : ""}`}
      transform={`translate(${at.x - NODE.width / 2} ${at.y - NODE.height / 2})`}
      role="button"
      tabindex={0}
      aria-description={about}
      aria-pressed={props.isSelected}
      data-step={name}
      onClick={props.onSelect}
      onKeyDown={onKey}
    >
      <rect class="box" width={NODE.width} height={NODE.height} rx="9" />
      <text class="title" x="12" y="21">
        {shortened(name, 18)}
      </text>
      <text class="count" x={NODE.width - 12} y="21" text-anchor="end">
        ×{props.parallelism}
      </text>
      <text class="rates" x="12" y="40">
        {ratesText(load)}
      </text>
      <rect class="track" x="12" y="49" width={inner} height="7" rx="3.5" />
      <rect class={`fill ${tone}`} x="12" y="49" width={inner * clamp(busy)} height="7" rx="3.5" />
      <rect class="track" x="12" y="61" width={inner} height="7" rx="3.5" />
      <rect class="fill blocked" x="12" y="61" width={inner * clamp(blocked)} height="7" rx="3.5" />
      {isSlow && (
        <g transform={`translate(${NODE.width - 58} -11)`} aria-hidden="true">
          <rect class="flag" width="50" height="20" rx="10" />
          <text class="flag-text" x="25" y="14" text-anchor="middle">
            {load?.is_failing === true ? "FAILS" : "SLOW"}
          </text>
        </g>
      )}
    </g>
  );
}

function ratesText(load: VertexTop | null): string {
  const parts = [];
  if ((load?.records_in_per_s ?? 0) > 0 || load?.latency_p99_s !== null) parts.push(`in ${short(load?.records_in_per_s)}`);
  parts.push(`out ${short(load?.records_out_per_s)}`);
  if (load?.latency_p99_s != null) parts.push(seconds(load.latency_p99_s));
  return parts.join(" · ");
}

function clamp(share: number | null): number {
  return Math.min(Math.max(share ?? 0, 0), 1);
}

function Edge(props: {
  edge: LogicalEdge;
  points: Point[];
  isVertical: boolean;
  edges: LogicalEdge[];
  load: Map<string, VertexTop>;
}) {
  const { edge, points, isVertical } = props;
  const perSecond = edgeRate(edge, props.edges, props.load);
  const path = pathOf(points, isVertical);
  const width = perSecond === null || perSecond <= 0 ? 1.2 : Math.min(1.2 + Math.log10(1 + perSecond) * 0.7, 6);
  const isBlocked = props.load.get(edge.from)?.waits_for === edge.to;
  const [one, other] = [points[0]!, points[1]!];
  const middle = { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 };
  return (
    <g class={`edge${isBlocked ? " blocked" : ""}`}>
      <path d={path} stroke-width={width} marker-end="url(#arrow)">
        <title>{`${shortened(edge.from, 100)} to ${shortened(edge.to, 100)}: ${edge.routing}`}</title>
      </path>
      {perSecond !== null && (
        <text x={middle.x} y={middle.y - (isVertical ? 0 : 6)} text-anchor="middle">
          {rate(perSecond)}
        </text>
      )}
    </g>
  );
}

function pathOf(points: Point[], isVertical: boolean): string {
  const half = isVertical ? NODE.height / 2 : NODE.width / 2;
  const ends = points.map((point, index) => {
    const isFirst = index === 0;
    const isLast = index === points.length - 1;
    const next = isFirst ? points[1]! : points[index - 1]!;
    if (!isFirst && !isLast) return point;
    const sign = (isVertical ? next.y - point.y : next.x - point.x) >= 0 ? 1 : -1;
    return isVertical ? { x: point.x, y: point.y + sign * half } : { x: point.x + sign * half, y: point.y };
  });
  const [start, ...rest] = ends;
  let path = `M${start!.x} ${start!.y}`;
  let from = start!;
  for (const to of rest) {
    const bend = isVertical ? (from.y + to.y) / 2 : (from.x + to.x) / 2;
    path += isVertical ? `C${from.x} ${bend} ${to.x} ${bend} ${to.x} ${to.y}` : `C${bend} ${from.y} ${bend} ${to.y} ${to.x} ${to.y}`;
    from = to;
  }
  return path;
}

/** Zoom by wheel and buttons, and moving by dragging. */
function useZoom(
  frame: { current: HTMLElement | null },
  size: { width: number; height: number },
  graph: Layout<LogicalEdge>,
  focus: string | null,
) {
  const [view, setView] = useState<View>({ scale: 1, x: 0, y: 0 });
  const fitted = (least: number): View => {
    const margin = 28;
    const whole = Math.min((size.width - margin) / graph.width, (size.height - margin - 24) / graph.height, 1.25);
    const scale = Math.max(whole, least);
    const node = graph.nodes.find((it) => it.name === focus) ?? null;
    const centre = (extent: number, length: number, at: number | undefined) => {
      const free = extent - length * scale;
      if (free >= 0) return free / 2;
      // What does not fit is shown from its start, or around the slow step.
      return at === undefined ? margin / 2 : Math.min(Math.max(extent / 2 - at * scale, free - margin / 2), margin / 2);
    };
    return { scale, x: centre(size.width, graph.width, node?.x), y: centre(size.height, graph.height, node?.y) };
  };
  const shape = `${graph.width} ${graph.height} ${size.width} ${size.height}`;
  useEffect(() => {
    if (size.width > 0) setView(fitted(READABLE));
  }, [shape]);
  const zoomAt = (factor: number, x: number, y: number) =>
    setView((before) => {
      const scale = Math.min(Math.max(before.scale * factor, MIN_SCALE), MAX_SCALE);
      const change = scale / before.scale;
      return { scale, x: x - (x - before.x) * change, y: y - (y - before.y) * change };
    });
  useEffect(() => {
    const element = frame.current;
    if (element === null) return undefined;
    const onWheel = (event: WheelEvent) => {
      // Without a modifier the wheel scrolls the page.
      if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
      event.preventDefault();
      const bounds = element.getBoundingClientRect();
      const turned = event.deltaY !== 0 ? event.deltaY : event.deltaX;
      zoomAt(Math.exp(-turned / 400), event.clientX - bounds.left, event.clientY - bounds.top);
    };
    let last: { x: number; y: number } | null = null;
    const onDown = (event: PointerEvent) => {
      if ((event.target as Element).closest(".node, button") === null) last = { x: event.clientX, y: event.clientY };
    };
    const onMove = (event: PointerEvent) => {
      if (last === null) return;
      const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
      last = { x: event.clientX, y: event.clientY };
      setView((before) => ({ ...before, x: before.x + dx, y: before.y + dy }));
    };
    const onUp = () => (last = null);
    element.addEventListener("wheel", onWheel, { passive: false });
    element.addEventListener("pointerdown", onDown);
    addEventListener("pointermove", onMove);
    addEventListener("pointerup", onUp);
    addEventListener("pointercancel", onUp);
    return () => {
      element.removeEventListener("wheel", onWheel);
      element.removeEventListener("pointerdown", onDown);
      removeEventListener("pointermove", onMove);
      removeEventListener("pointerup", onUp);
      removeEventListener("pointercancel", onUp);
    };
  }, []);
  return {
    view,
    by: (factor: number) => zoomAt(factor, size.width / 2, size.height / 2),
    fit: () => setView(fitted(MIN_SCALE)),
  };
}
