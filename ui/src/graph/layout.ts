// The layered layout of a graph: each step after its producers, edges with few crossings.

export interface GraphEdge {
  from: string;
  to: string;
}

export interface Point {
  x: number;
  y: number;
}

export interface PlacedNode extends Point {
  name: string;
}

export interface PlacedEdge<E> {
  edge: E;
  /** Where the edge passes each layer, from the producer to the consumer. */
  points: Point[];
}

export interface Layout<E> {
  width: number;
  height: number;
  nodes: PlacedNode[];
  edges: PlacedEdge<E>[];
}

export interface Sizes {
  /** Size of a node along the layers' direction and across it. */
  along: number;
  across: number;
  layerGap: number;
  nodeGap: number;
}

/** A node, or the place where an edge passes a layer. */
interface Cell {
  name: string | null;
  layer: number;
  before: Cell[];
  after: Cell[];
  position: number;
}

const SWEEPS = 12;
/** Space that an edge needs where it passes a layer, as a share of a node's size. */
const PASSING_SHARE = 0.35;

/** Places the nodes and edges of a graph. Layers advance along x; `isVertical` exchanges x and y. */
export function layout<E extends GraphEdge>(names: string[], edges: E[], sizes: Sizes, isVertical: boolean): Layout<E> {
  const known = new Set(names);
  const usable = edges.filter((edge) => known.has(edge.from) && known.has(edge.to) && edge.from !== edge.to);
  const layers = layersOf(names, usable);
  const cells = new Map(names.map((name) => [name, newCell(name, layers.get(name) ?? 0)]));
  const passing = new Map<E, Cell[]>();
  const rows: Cell[][] = [];
  for (const cell of cells.values()) (rows[cell.layer] ??= []).push(cell);
  for (const edge of usable) {
    const [from, to] = [cells.get(edge.from)!, cells.get(edge.to)!];
    const [first, last] = from.layer <= to.layer ? [from, to] : [to, from];
    const path = [first];
    for (let layer = first.layer + 1; layer < last.layer; layer += 1) {
      const cell = newCell(null, layer);
      (rows[layer] ??= []).push(cell);
      path.push(cell);
    }
    path.push(last);
    for (let index = 1; index < path.length; index += 1) {
      path[index - 1]!.after.push(path[index]!);
      path[index]!.before.push(path[index - 1]!);
    }
    passing.set(edge, first === from ? path : path.reverse());
  }
  order(rows);
  const breadth = place(rows, sizes);
  const at = (cell: Cell): Point => {
    const along = cell.layer * (sizes.along + sizes.layerGap) + sizes.along / 2;
    return isVertical ? { x: cell.position, y: along } : { x: along, y: cell.position };
  };
  const length = Math.max(rows.length * (sizes.along + sizes.layerGap) - sizes.layerGap, sizes.along);
  return {
    width: isVertical ? breadth : length,
    height: isVertical ? length : breadth,
    nodes: names.map((name) => ({ name, ...at(cells.get(name)!) })),
    edges: usable.map((edge) => ({ edge, points: passing.get(edge)!.map(at) })),
  };
}

function newCell(name: string | null, layer: number): Cell {
  return { name, layer, before: [], after: [], position: 0 };
}

/** Assigns to each node the length of the longest path to it. Edges that close a cycle are ignored. */
function layersOf(names: string[], edges: GraphEdge[]): Map<string, number> {
  const outputs = new Map<string, string[]>();
  for (const edge of edges) {
    const targets = outputs.get(edge.from) ?? [];
    targets.push(edge.to);
    outputs.set(edge.from, targets);
  }
  // A depth-first search without recursion: graphs may be deep.
  const state = new Map<string, "open" | "done">();
  const finished: string[] = [];
  const forward = new Map<string, string[]>();
  for (const root of names) {
    if (state.has(root)) continue;
    state.set(root, "open");
    const stack = [{ name: root, next: 0 }];
    while (stack.length > 0) {
      const top = stack[stack.length - 1]!;
      const target = (outputs.get(top.name) ?? [])[top.next];
      top.next += 1;
      if (target === undefined) {
        state.set(top.name, "done");
        finished.push(top.name);
        stack.pop();
      } else if (state.get(target) !== "open") {
        const targets = forward.get(top.name) ?? [];
        targets.push(target);
        forward.set(top.name, targets);
        if (!state.has(target)) {
          state.set(target, "open");
          stack.push({ name: target, next: 0 });
        }
      }
    }
  }
  const layers = new Map(names.map((name) => [name, 0]));
  const sorted = finished.reverse();
  for (const name of sorted) {
    for (const target of forward.get(name) ?? []) {
      layers.set(target, Math.max(layers.get(target)!, layers.get(name)! + 1));
    }
  }
  // A source that only a late step reads stands right before it.
  const hasInput = new Set(edges.map((edge) => edge.to));
  for (const name of names) {
    const targets = forward.get(name) ?? [];
    if (!hasInput.has(name) && targets.length > 0) {
      layers.set(name, Math.min(...targets.map((target) => layers.get(target)!)) - 1);
    }
  }
  return layers;
}

/** Orders each layer by the mean position of the neighbours, which leaves few crossings. */
function order(rows: Cell[][]): void {
  for (const row of rows) row.forEach((cell, index) => (cell.position = index));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isDown = sweep % 2 === 0;
    const sequence = isDown ? rows : [...rows].reverse();
    for (const row of sequence) {
      const wanted = new Map(row.map((cell) => [cell, mean(isDown ? cell.before : cell.after, cell.position)]));
      row.sort((one, other) => wanted.get(one)! - wanted.get(other)!);
      row.forEach((cell, index) => (cell.position = index));
    }
  }
}

function mean(cells: Cell[], otherwise: number): number {
  if (cells.length === 0) return otherwise;
  return cells.reduce((sum, cell) => sum + cell.position, 0) / cells.length;
}

/** Sets the positions across the layers, and returns the greatest extent. */
function place(rows: Cell[][], sizes: Sizes): number {
  const half = (cell: Cell) => (cell.name === null ? sizes.across * PASSING_SHARE : sizes.across) / 2;
  const distance = (one: Cell, other: Cell) => half(one) + half(other) + sizes.nodeGap;
  for (const row of rows) {
    row.forEach((cell, index) => {
      const before = row[index - 1];
      cell.position = before === undefined ? half(cell) : before.position + distance(before, cell);
    });
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const wanted = row.map((cell) => mean(isDown ? cell.before : cell.after, cell.position));
      spread(row, wanted, distance);
    }
  }
  const all = rows.flat();
  const least = Math.min(...all.map((cell) => cell.position - half(cell)));
  for (const cell of all) cell.position -= least;
  return Math.max(...all.map((cell) => cell.position + half(cell)));
}

/** Moves the cells of a row as near to the wanted positions as their order and distances allow. */
function spread(row: Cell[], wanted: number[], distance: (one: Cell, other: Cell) => number): void {
  const low: number[] = [];
  const high: number[] = [];
  for (let index = 0; index < row.length; index += 1) {
    const least = index === 0 ? -Infinity : low[index - 1]! + distance(row[index - 1]!, row[index]!);
    low.push(Math.max(wanted[index]!, least));
  }
  for (let index = row.length - 1; index >= 0; index -= 1) {
    const most = index === row.length - 1 ? Infinity : high[index + 1]! - distance(row[index]!, row[index + 1]!);
    high[index] = Math.min(wanted[index]!, most);
  }
  row.forEach((cell, index) => (cell.position = (low[index]! + high[index]!) / 2));
}
