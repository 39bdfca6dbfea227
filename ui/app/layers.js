// Lays out a graph in layers from left to right with few crossings. Pure functions.
//
//     nodes [{id}], links [{from, to}], room  ->
//         {width, height, column, wide, nodes: Map id -> {x, y, high}, links: [{link, points, apart}]}
//
// `room` is the width there is. Layers stand as far apart as it allows, and never so near that nothing could be read
// between them: then the drawing is wider. A node is as high as the links that arrive at it need.
//
// In four steps, as Sugiyama, Tagawa and Toda described them in 1981: turn round the links that close a circle, put each
// node one layer behind the last that leads to it, order each layer by where its neighbours are (some sweeps there and
// back), and give out places. A link over several layers takes a place in each, so that it runs round the nodes.

const SWEEPS = 8;
const HIGH = 44; // the least height of a node
const GAP = 16; // between one node and the next below
const BEND = 30; // the room of a link that only passes
const PORT = 16; // between two links that arrive at a node
const PORTS_MAX = 8; // so many links make a node higher; more arrive nearer together
const EDGE = 8; // around the whole
const LARGE = { wide: 176, apart: 120 }; // of nodes, and from one to one of the next layer, at least
const SMALL = { wide: 128, apart: 92 }; // where there is less room
const APART_MAX = 260; // from a node to one of the next layer

const widthOf = (layers, { wide, apart }) => 2 * EDGE + layers * wide + (layers - 1) * apart;

export function layout(nodes, links, room = 1000) {
  const forward = withoutCircles(nodes, links);
  const layers = withBends(layersOf(nodes, forward), forward);
  order(layers);
  return placed(layers, forward, room);
}

const highOf = ({ bend, before }) => (bend ? 0 : Math.max(HIGH, Math.min(before.length, PORTS_MAX) * PORT + 8));
const roomOf = (cell) => (cell.bend ? BEND : highOf(cell) + GAP);

/** Returns links, with `over` if they are reversed because they would close a circle. */
function withoutCircles(nodes, links) {
  const leads = new Map(nodes.map(({ id }) => [id, []]));
  const known = links.filter(({ from, to }) => leads.has(from) && leads.has(to) && from !== to);
  for (const link of known) leads.get(link.from).push(link);
  const state = new Map();
  const turned = new Set();
  const reached = new Set(known.map(({ to }) => to));
  const sources = nodes.filter(({ id }) => !reached.has(id));
  for (const { id } of [...sources, ...nodes]) visit(id, leads, state, turned);
  return known.map((link) => ({
    link,
    from: turned.has(link) ? link.to : link.from,
    to: turned.has(link) ? link.from : link.to,
  }));
}

// Depth first, with an explicit stack: a chain may be long.
function visit(start, leads, state, turned) {
  if (state.has(start)) return;
  const stack = [[start, 0]];
  state.set(start, "open");
  while (stack.length) {
    const top = stack.at(-1);
    const link = leads.get(top[0])[top[1]];
    top[1] += 1;
    if (!link) {
      state.set(top[0], "done");
      stack.pop();
    } else if (state.get(link.to) === "open") {
      turned.add(link);
    } else if (!state.has(link.to)) {
      state.set(link.to, "open");
      stack.push([link.to, 0]);
    }
  }
}

/** Returns id -> layer: one behind the last that leads to it. */
function layersOf(nodes, forward) {
  const layer = new Map(nodes.map(({ id }) => [id, 0]));
  const waiting = new Map(nodes.map(({ id }) => [id, 0]));
  const leads = new Map(nodes.map(({ id }) => [id, []]));
  for (const { from, to } of forward) {
    leads.get(from).push(to);
    waiting.set(to, waiting.get(to) + 1);
  }
  const ready = nodes.map(({ id }) => id).filter((id) => waiting.get(id) === 0);
  for (let next = 0; next < ready.length; next += 1) {
    for (const to of leads.get(ready[next])) {
      layer.set(to, Math.max(layer.get(to), layer.get(ready[next]) + 1));
      waiting.set(to, waiting.get(to) - 1);
      if (waiting.get(to) === 0) ready.push(to);
    }
  }
  return layer;
}

/** Returns layers of cells {id, bend, before, behind}: bends cut links over several layers; edges keep `cells`. */
function withBends(layer, forward) {
  const layers = [];
  const cells = new Map();
  const add = (id, at, bend) => {
    const cell = { id, at, bend, before: [], behind: [], y: 0 };
    (layers[at] ??= []).push(cell);
    return cell;
  };
  for (const [id, at] of layer) cells.set(id, add(id, at, false));
  for (const edge of forward) {
    edge.cells = [cells.get(edge.from)];
    for (let at = layer.get(edge.from) + 1; at < layer.get(edge.to); at += 1)
      edge.cells.push(add(null, at, true));
    edge.cells.push(cells.get(edge.to));
    for (let index = 1; index < edge.cells.length; index += 1) {
      edge.cells[index - 1].behind.push(edge.cells[index]);
      edge.cells[index].before.push(edge.cells[index - 1]);
    }
  }
  return layers.map((each) => each ?? []);
}

/** Orders each layer by the mean place of its neighbours, and keeps the order with the fewest crossings. */
function order(layers) {
  number(layers);
  let best = remembered(layers);
  for (let sweep = 0; sweep < SWEEPS && best.crossings > 0; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const cells of down ? layers.slice(1) : layers.slice(0, -1).reverse()) {
      sortByMean(cells, down ? "before" : "behind");
    }
    const now = remembered(layers);
    if (now.crossings < best.crossings) best = now;
  }
  layers.forEach((cells, index) => cells.splice(0, cells.length, ...best.order[index]));
  number(layers);
}

const number = (layers) =>
  layers.forEach((cells) =>
    cells.forEach((cell, place) => {
      cell.place = place;
    }),
  );

const remembered = (layers) => ({ crossings: crossings(layers), order: layers.map((cells) => [...cells]) });

function sortByMean(cells, side) {
  const mean = new Map(
    cells.map((cell) => [
      cell,
      meanOf(
        cell[side].map(({ place }) => place),
        isAlone(cell) ? Infinity : cell.place,
      ),
    ]),
  );
  cells.sort((a, b) => compared(mean.get(a), mean.get(b)) || a.place - b.place);
  cells.forEach((cell, place) => {
    cell.place = place;
  });
}

const compared = (a, b) => Number(a > b) - Number(a < b); // also of two infinite ones

// Nodes without links come last.
const isAlone = ({ before, behind }) => before.length + behind.length === 0;

const meanOf = (numbers, otherwise) =>
  numbers.length ? numbers.reduce((sum, each) => sum + each, 0) / numbers.length : otherwise;

function crossings(layers) {
  let found = 0;
  for (const cells of layers) {
    const pairs = cells.flatMap((cell) => cell.behind.map(({ place }) => [cell.place, place]));
    pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    found += inversions(pairs.map(([, place]) => place));
  }
  return found;
}

/** Returns how many pairs of numbers are in the wrong order, counted while they are merged: n log n. */
export function inversions(numbers) {
  if (numbers.length < 2) return 0;
  const half = numbers.length >> 1;
  const left = numbers.slice(0, half);
  const right = numbers.slice(half);
  let found = inversions(left) + inversions(right);
  left.sort((a, b) => a - b);
  right.sort((a, b) => a - b);
  let at = 0;
  for (const each of left) {
    while (at < right.length && right[at] < each) at += 1;
    found += at;
  }
  return found;
}

/** Returns places as near to the neighbours as the order and the gaps allow. */
function placed(layers, forward, room) {
  for (const cells of layers)
    stack(
      cells,
      cells.map((cell) => cell.place * (HIGH + GAP)),
    );
  for (let round = 0; round < 6; round += 1) {
    const down = round % 2 === 0;
    for (const cells of down ? layers : [...layers].reverse()) {
      stack(
        cells,
        cells.map((cell) =>
          meanOf(
            cell[down ? "before" : "behind"].map(({ y }) => y),
            cell.y,
          ),
        ),
      );
    }
  }
  const all = layers.flat();
  closeUp(all);
  const top = all.reduce((least, cell) => Math.min(least, cell.y - roomOf(cell) / 2), Infinity);
  const bottom = all.reduce((most, cell) => Math.max(most, cell.y + roomOf(cell) / 2), -Infinity);
  const { wide, apart } = widthOf(layers.length, LARGE) <= room ? LARGE : SMALL;
  const between = (room - 2 * EDGE - wide) / Math.max(layers.length - 1, 1);
  const column = Math.round(Math.min(Math.max(between, wide + apart), wide + APART_MAX));
  const spot = (cell) => ({ x: EDGE + cell.at * column, y: Math.round(EDGE + cell.y - top), high: highOf(cell) });
  const ports = portsOf(forward);
  return {
    width: 2 * EDGE + Math.max(layers.length - 1, 0) * column + wide,
    height: all.length ? Math.round(bottom - top + 2 * EDGE) : 2 * EDGE,
    column,
    wide,
    nodes: new Map(all.filter(({ bend }) => !bend).map((cell) => [cell.id, spot(cell)])),
    links: forward.map((edge) => {
      const points = edge.cells.map(spot);
      points.at(-1).y += ports.get(edge).off;
      return {
        link: edge.link,
        points: edge.from === edge.link.from ? points : points.reverse(),
        apart: ports.get(edge).apart,
      };
    }),
  };
}

/** Moves up what is below a band that would be empty from left to right. */
function closeUp(cells) {
  const topOf = (cell) => cell.y - roomOf(cell) / 2;
  let bottom = -Infinity;
  let shift = 0;
  for (const cell of [...cells].sort((a, b) => topOf(a) - topOf(b))) {
    if (bottom > -Infinity) shift += Math.max(topOf(cell) - shift - bottom, 0);
    cell.y -= shift;
    bottom = Math.max(bottom, cell.y + roomOf(cell) / 2);
  }
}

/** Returns how far above or below a node's middle each edge arrives, in the order of their sources, and how far apart. */
function portsOf(forward) {
  const arriving = new Map();
  for (const edge of forward) {
    if (!arriving.has(edge.to)) arriving.set(edge.to, []);
    arriving.get(edge.to).push(edge);
  }
  const ports = new Map();
  for (const edges of arriving.values()) {
    edges.sort((a, b) => a.cells.at(-2).y - b.cells.at(-2).y);
    const apart = Math.min(PORT, (PORTS_MAX * PORT) / edges.length);
    edges.forEach((edge, index) =>
      ports.set(edge, { off: Math.round((index - (edges.length - 1) / 2) * apart), apart: edges.length > 1 ? apart : Infinity }),
    );
  }
  return ports;
}

// Wanted places in order, each moved down until it is clear of the one above; then all moved to keep the mean.
function stack(cells, wished) {
  let least = -Infinity;
  let above = 0;
  cells.forEach((cell, index) => {
    const room = roomOf(cell);
    cell.y = Math.max(wished[index], least + (index ? (room + above) / 2 : 0));
    least = cell.y;
    above = room;
  });
  const shift = meanOf(
    wished.map((wish, index) => wish - cells[index].y),
    0,
  );
  for (const cell of cells) cell.y += shift;
}
