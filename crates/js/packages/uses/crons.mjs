import cron from 'node-cron';
import { Cron } from 'croner';
import rrule from 'rrule';
import { CronExpressionParser } from 'cron-parser';
import schedule from 'node-schedule';
import * as chrono from 'chrono-node';
import humanize from 'humanize-duration';
import { formatInTimeZone, toZonedTime, fromZonedTime } from 'date-fns-tz';
import mtz from 'moment-timezone';
import moment from 'moment';
export default async () => {
  let n = 0;
  const j = schedule.scheduleJob(new Date(Date.now() + 30), () => n++);
  const done = await new Promise((r) => j.on('run', () => r(true)));
  let c = 0;
  const task = cron.schedule('* * * * * *', () => c++);
  task.stop();
  return [
    cron.validate('*/5 * * * *'),
    cron.validate('x'),
    new Cron('0 0 1 1 *', { timezone: 'Europe/Berlin' })
      .nextRun(new Date('2024-05-01T00:00:00Z'))
      .toISOString(),
    new rrule.RRule({
      freq: rrule.RRule.WEEKLY,
      count: 3,
      dtstart: new Date(Date.UTC(2024, 0, 1)),
      byweekday: [rrule.RRule.MO],
    })
      .all()
      .map(String).length,
    rrule.rrulestr('FREQ=DAILY;COUNT=2;DTSTART=20240101T000000Z').toText(),
    CronExpressionParser.parse('0 12 * * 1-5', {
      currentDate: new Date('2024-01-01T00:00:00Z'),
      tz: 'America/New_York',
    })
      .next()
      .toISOString(),
    done,
    n,
    chrono.parseDate('tomorrow at 5pm', new Date('2024-01-01T12:00:00Z'), { timezone: 0 })?.toISOString?.() ??
      null,
    humanize(3723000),
    formatInTimeZone(new Date(0), 'Asia/Tokyo', 'yyyy-MM-dd HH:mm:ssXXX zzz'),
    fromZonedTime('2024-07-01 10:00', 'Europe/Paris').toISOString(),
    mtz.tz('2024-07-01T00:00:00Z', 'America/New_York').format('LLLL z Z'),
    moment.utc(0).locale('de').format('dddd, D. MMMM YYYY'),
    moment.duration(90, 'minutes').humanize(),
  ];
};
