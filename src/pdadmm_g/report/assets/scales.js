// From values to pixels, and the round values that get a mark on an axis.

/** Where a value lies between two pixels. */
function scale(low, high, from, to, log) {
  const place = log ? Math.log10 : (value) => value;
  const slope = (to - from) / (place(high) - place(low) || 1);
  return (value) => from + (place(value) - place(low)) * slope;
}

function linearTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
    ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

/** Powers of ten; where fewer than two would be seen, values between them. */
function logTicks(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9),
    last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) {
    const fine = [];
    for (let k = first - 1; k <= last; k++)
      for (const m of [1, 2, 3, 5, 7]) fine.push(Number((m * 10 ** k).toPrecision(6)));
    const inside = fine.filter((value) => value >= low && value <= high);
    return inside.length > 1 ? inside : linearTicks(low, high, count).filter((value) => value > 0);
  }
  const step = Math.ceil((last - first + 1) / count);
  const ticks = [];
  for (let k = first; k <= last; k += step) ticks.push(10 ** k);
  return ticks;
}

/** The last index whose value is at most x; 0 if there is none. */
function before(sorted, x) {
  let low = 0,
    high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}
