// Numbers as text: shares, counts, seconds, bytes.

const DASH = "\u2013";
const share = (value) => (value == null ? DASH : value.toFixed(3));
const whole = (value) =>
  value == null ? DASH : value >= 1e7 ? short(value) : Math.round(value).toLocaleString("en-GB");
const epochSpan = (first, last) => (first === last ? `${last}` : `${first}\u2013${last}`);
const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** A number in few characters: 0.00012 as 1.2e-4, 12000 as 12k. */
function short(value, digits = 3) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e15) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    return `${trim(mantissa)}e${Number(exponent)}`;
  }
  for (const [letter, unit] of Object.entries({ T: 1e12, G: 1e9, M: 1e6, k: 1e3 })) {
    if (size >= unit * (unit === 1e3 ? 10 : 1)) return trim((value / unit).toPrecision(digits)) + letter;
  }
  return size >= 1000 ? String(Math.round(value)) : trim(value.toPrecision(digits));
}

function seconds(value) {
  if (value == null) return DASH;
  if (value >= 7200) return `${(value / 3600).toFixed(1)} h`;
  if (value >= 120) return `${(value / 60).toFixed(1)} min`;
  if (value >= 1 || value === 0) return `${trim(value.toPrecision(3))} s`;
  if (value >= 1e-3) return `${trim((1e3 * value).toPrecision(3))} ms`;
  return `${trim((1e6 * value).toPrecision(3))} \u00b5s`;
}

function bytes(value) {
  if (value == null) return DASH;
  for (const [name, unit] of Object.entries({ TB: 1e12, GB: 1e9, MB: 1e6, kB: 1e3 })) {
    if (value >= unit) return `${trim((value / unit).toPrecision(3))} ${name}`;
  }
  return `${Math.round(value)} B`;
}
