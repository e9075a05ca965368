// Rounding for `Intl.NumberFormat`: numbers as they are written, in digits, like ICU's.

/** The digits of a number without an exponent. */
export function plain(number) {
  const text = `${number}`;
  const found = /^(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(text);
  if (!found) return text;
  const digits = found[1] + (found[2] ?? '');
  const point = 1 + Number(found[3]);
  if (point <= 0) return `0.${'0'.repeat(-point)}${digits}`;
  if (point >= digits.length) return digits.padEnd(point, '0');
  return `${digits.slice(0, point)}.${digits.slice(point)}`;
}

/** Whether a magnitude rounds up; `half` is the sign of its rest compared with one half. */
const UP = {
  ceil: (negative) => !negative,
  floor: (negative) => negative,
  expand: () => true,
  trunc: () => false,
  halfCeil: (negative, half) => half > 0 || (half === 0 && !negative),
  halfFloor: (negative, half) => half > 0 || (half === 0 && negative),
  halfExpand: (negative, half) => half >= 0,
  halfTrunc: (negative, half) => half > 0,
  halfEven: (negative, half, odd) => half > 0 || (half === 0 && odd),
};

export const isMode = (mode) => Object.hasOwn(UP, mode);

/** Rounds digits to `most` fraction digits; a negative `most` rounds before the point. */
function toFraction(text, most, { negative, mode, increment = 1 }) {
  const [whole, fraction = ''] = text.split('.');
  const scale = fraction.length - most;
  let value = BigInt(whole + fraction);
  let unit = BigInt(increment);
  if (scale >= 0) unit *= 10n ** BigInt(scale);
  else value *= 10n ** BigInt(-scale);
  let times = value / unit;
  const rest = value % unit;
  if (rest > 0n) {
    const double = rest * 2n;
    const half = double > unit ? 1 : double === unit ? 0 : -1;
    if (UP[mode](negative, half, times % 2n === 1n)) times += 1n;
  }
  const rounded = times * BigInt(increment);
  if (most <= 0) return (rounded * 10n ** BigInt(-most)).toString();
  const digits = rounded.toString().padStart(most + 1, '0');
  return `${digits.slice(0, -most)}.${digits.slice(-most)}`;
}

export const fixed = (number, most, how) => toFraction(plain(number), most, how);

/** Rounds to so many digits, without zeros at the end of the fraction. */
export function precise(number, digits, how) {
  const text = plain(number);
  if (Number(text) === 0) return '0';
  const [whole, fraction = ''] = text.split('.');
  const before = whole === '0' ? -/^0*/.exec(fraction)[0].length : whole.length;
  const rounded = toFraction(text, digits - before, how);
  return rounded.includes('.') ? rounded.replace(/\.?0+$/, '') : rounded;
}
