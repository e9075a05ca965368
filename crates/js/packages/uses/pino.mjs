import pino from 'pino';
import { Writable } from 'node:stream';
export default async () => {
  const lines = [];
  const log = pino({ base: null, timestamp: false }, new Writable({ write(chunk, encoding, done) { lines.push(JSON.parse(chunk)); done(); } }));
  log.info({ a: 1 }, 'hello %s', 'you');
  log.child({ b: 2 }).error(new Error('no'), 'failed');
  await new Promise((resolve) => setImmediate(resolve));
  return lines.map(({ level, msg, a, b, err }) => [level, msg, a, b, err?.message]);
};
