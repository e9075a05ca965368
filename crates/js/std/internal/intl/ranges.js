// Ranges of dates and times, as English writes them: what both ends share is written once.

/** Between thin spaces. */
const DASH = '\u2009\u2013\u2009';
const DATE = ['weekday', 'year', 'month', 'day'];
const TIME = ['hour', 'minute', 'second', 'fractionalSecondDigits'];

const only = (fields, names) =>
  Object.fromEntries(Object.entries(fields).filter(([name]) => names.includes(name)));
const from = (parts, source) => parts.map((part) => ({ ...part, source }));
const join = (start, end) => [
  ...from(start, 'startRange'),
  { type: 'literal', value: DASH, source: 'shared' },
  ...from(end, 'endRange'),
];

/** The largest field of dates in which two days differ; none if they are one. */
function difference(made, first, second) {
  const day = made({ year: 'numeric', month: 'numeric', day: 'numeric' });
  const [one, other] = [first, second].map((when) =>
    Object.fromEntries(day.formatToParts(when).map(({ type, value }) => [type, value])),
  );
  return ['year', 'month', 'day'].find((name) => one[name] !== other[name]);
}

/** The parts before the year and what separates it, and these. */
function split(parts) {
  const at = parts.findIndex(({ type }) => type === 'year');
  return at > 0 ? [parts.slice(0, at - 1), parts.slice(at - 1)] : [parts, []];
}

/** The parts of a range. `made` returns a format of fields, in the same time zone. */
export function rangeParts(made, fields, first, second) {
  const differs = difference(made, first, second);
  const format = made(fields);
  const [start, end] = [first, second].map((when) => format.formatToParts(when));
  if (TIME.some((name) => fields[name] !== undefined))
    return timeParts(made, fields, first, second, differs, start);
  const smallest =
    (fields.day ?? fields.weekday) !== undefined ? 'day' : fields.month !== undefined ? 'month' : 'year';
  const order = ['year', 'month', 'day'];
  if (differs === undefined || order.indexOf(differs) > order.indexOf(smallest)) return from(start, 'shared');
  const isWorded = ['long', 'short', 'narrow'].includes(fields.month);
  if (!isWorded) return numericParts(made, fields, first, second, differs);
  if (differs === 'year') {
    if (fields.day === undefined || fields.year !== undefined) return join(start, end);
    const whole = made({ ...fields, year: 'numeric' });
    return join(whole.formatToParts(first), whole.formatToParts(second));
  }
  const [head] = split(start);
  const [tail, year] = split(end);
  if (differs === 'month' || fields.weekday !== undefined)
    return [...join(head, tail), ...from(year, 'shared')];
  const isDay = ({ type }) => type === 'day';
  return [
    ...from(head.slice(0, head.findIndex(isDay)), 'shared'),
    ...join(head.filter(isDay), tail.filter(isDay)),
    ...from(year, 'shared'),
  ];
}

function numericParts(made, fields, first, second, differs) {
  const whole = { ...fields };
  if (fields.day !== undefined && differs !== 'day') whole.month ??= 'numeric';
  if (fields.day !== undefined && differs === 'year') whole.year ??= 'numeric';
  for (const name of ['month', 'day']) if (whole[name] !== undefined) whole[name] = 'numeric';
  const format = made(whole);
  return join(format.formatToParts(first), format.formatToParts(second));
}

/** What stands before halves of a day: a narrow space in ranges, as in the Unicode data; elsewhere engines write a plain one. */
const narrow = (parts) =>
  parts.map((part, at) => (parts[at + 1]?.type === 'dayPeriod' ? { ...part, value: '\u202f' } : part));

function timeParts(made, fields, first, second, differs, whole) {
  const text = (when) => made(fields).format(when);
  if (differs === undefined && text(first) === text(second)) return from(whole, 'shared');
  const isDated = DATE.some((name) => fields[name] !== undefined);
  // Hours to 12 have no zero before them in ranges.
  const timed = fields.hour !== undefined && fields.hour12 ? { ...fields, hour: 'numeric' } : fields;
  if (differs !== undefined) {
    const format = made(isDated ? timed : { ...timed, year: 'numeric', month: 'numeric', day: 'numeric' });
    return narrow(join(format.formatToParts(first), format.formatToParts(second)));
  }
  const time = made(only(timed, [...TIME, 'hour12', 'hourCycle']));
  let early = time.formatToParts(first);
  const late = time.formatToParts(second);
  const [half, other] = [early, late].map((parts) => parts.find(({ type }) => type === 'dayPeriod')?.value);
  if (half !== undefined && half === other && fields.second === undefined) early = early.slice(0, -2);
  const day = only(fields, DATE);
  if (fields.second !== undefined)
    for (const name of ['month', 'day']) if (day[name] === '2-digit') day[name] = 'numeric';
  const date = isDated ? [...made(day).formatToParts(first), { type: 'literal', value: ', ' }] : [];
  const zone = whole.at(-1).type === 'timeZoneName' ? whole.slice(-2) : [];
  return narrow([...from(date, 'shared'), ...join(early, late), ...from(zone, 'shared')]);
}
