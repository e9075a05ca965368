import prettyBytes from 'pretty-bytes';
import { Temporal } from 'temporal-polyfill';
export default async () => [
  Temporal.PlainDate.from('2024-02-28').add({ days: 2 }).toString(),
  Temporal.ZonedDateTime.from('2024-03-31T01:30[Europe/Berlin]').add({ hours: 1 }).toString(),
  Temporal.Instant.from('2024-01-01T00:00Z').toZonedDateTimeISO('America/New_York').toString(),
  Temporal.Instant.from('2024-07-01T22:15Z').toZonedDateTimeISO('Asia/Tokyo').hour,
  Temporal.Duration.from({ minutes: 130 }).round({ largestUnit: 'hours' }).toString(),
  Temporal.PlainDate.from('2024-01-15').toLocaleString('en-US'),
  prettyBytes(1337),
  prettyBytes(1234.5, { locale: 'en', minimumFractionDigits: 2 }),
  prettyBytes(1_500_000, { locale: 'en', maximumFractionDigits: 1 }),
];
