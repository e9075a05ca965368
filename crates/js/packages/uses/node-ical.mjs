import ical from 'node-ical';
const text = [
  'BEGIN:VCALENDAR',
  'VERSION:2.0',
  'PRODID:x',
  'BEGIN:VEVENT',
  'UID:1@x',
  'DTSTAMP:20240101T000000Z',
  'DTSTART;TZID=Europe/Berlin:20240110T100000',
  'DTEND;TZID=Europe/Berlin:20240110T110000',
  'SUMMARY:Standup',
  'RRULE:FREQ=DAILY;COUNT=3',
  'END:VEVENT',
  'BEGIN:VEVENT',
  'UID:2@x',
  'DTSTART:20240111T100000Z',
  'DURATION:PT1H30M',
  'SUMMARY:Two',
  'LOCATION:Room\\, 2',
  'END:VEVENT',
  'END:VCALENDAR',
].join('\r\n');
export default async () =>
  Object.values(ical.sync.parseICS(text))
    .filter((each) => each.type === 'VEVENT')
    .map((each) => [
      each.uid,
      each.summary,
      each.start.toISOString(),
      each.end?.toISOString(),
      each.location,
      each.rrule?.all().map((date) => date.toISOString()),
    ]);
