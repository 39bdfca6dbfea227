import assert from "node:assert/strict";
import { test } from "node:test";

import { area, bounds, byteCeiling, ceiling, continued, gauges, line, nearest, speeds } from "./curves.js";

const SAMPLES = [
  { sample: 30, timestamp: 3000 },
  { sample: 10, timestamp: 2000 },
  { sample: 20, timestamp: 1000 },
];

test("samples come latest first and are drawn earliest first", () => {
  assert.deepEqual(gauges(SAMPLES), [
    [1000, 20],
    [2000, 10],
    [3000, 30],
  ]);
});

test("what is no number is left out", () => {
  assert.deepEqual(gauges([{ sample: "x", timestamp: 1 }, { sample: 1 }, { sample: 2, timestamp: 2 }]), [
    [2, 2],
  ]);
  assert.deepEqual(gauges(undefined), []);
});

test("a counter's speed is per second, and nothing where it began anew", () => {
  assert.deepEqual(speeds(SAMPLES), [
    [2000, 0],
    [3000, 20],
  ]);
  assert.deepEqual(
    speeds([
      { sample: 0, timestamp: 0 },
      { sample: 50, timestamp: 5000 },
    ]),
    [[5000, 10]],
  );
  assert.deepEqual(speeds([]), []);
});

test("two samples of one moment have no speed", () => {
  assert.deepEqual(
    speeds([
      { sample: 0, timestamp: 7 },
      { sample: 50, timestamp: 7 },
    ]),
    [[7, 0]],
  );
});

test("an axis ends at a round number that is not below", () => {
  for (const [most, round] of [
    [0, 1],
    [0.5, 1],
    [1, 1],
    [1.1, 2],
    [3, 5],
    [7, 10],
    [10, 10],
    [11, 20],
    [999, 1000],
    [48211, 50000],
  ]) {
    assert.equal(ceiling(most), round);
  }
  assert.equal(ceiling(NaN), 1);
});

test("a line goes from the left bottom to the right top of its box", () => {
  const points = [
    [0, 0],
    [5, 5],
    [10, 10],
  ];
  const box = bounds([points]);
  assert.deepEqual(box, { first: 0, last: 10, most: 10 });
  assert.equal(line(points, box, 100, 50), "M0 50L50 25L100 0");
  assert.equal(area(points, box, 100, 50), "M0 50L50 25L100 0L100 50L0 50Z");
});

test("nothing is drawn of nothing", () => {
  assert.equal(line([], bounds([[]]), 100, 50), "");
  assert.equal(area([[1, 1]], bounds([[[1, 1]]]), 100, 50), "");
});

test("the nearest point in time is found", () => {
  const points = [
    [0, 1],
    [10, 2],
    [20, 3],
  ];
  for (const [at, wanted] of [
    [-5, 1],
    [4, 1],
    [6, 2],
    [14, 2],
    [16, 3],
    [99, 3],
  ])
    assert.equal(nearest(points, at)[1], wanted);
});

test("a curve goes on to what is told beside it", () => {
  const points = [
    [1000, 20],
    [2000, 10],
  ];
  assert.deepEqual(continued(points, 30), [...points, [3000, 30]]);
  assert.deepEqual(continued(points, undefined), points);
  assert.deepEqual(continued([], 30), []);
});

test("bytes end at round numbers of their own units", () => {
  const ends = [1, 3000, 600 * 1024, 85 * 1024 ** 2].map(byteCeiling);
  assert.deepEqual(ends, [1024, 5 * 1024, 1024 ** 2, 100 * 1024 ** 2]);
});
