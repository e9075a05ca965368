import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import log4js from 'log4js';
export default async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'log4js-'));
  const file = path.join(folder, 'a.log');
  log4js.configure({
    appenders: {
      file: { type: 'file', filename: file, layout: { type: 'pattern', pattern: '%p %c %m' } },
    },
    categories: { default: { appenders: ['file'], level: 'info' } },
  });
  const log = log4js.getLogger('cat');
  log.info('hello', { a: 1 });
  log.debug('left out');
  log.error(new Error('bad').message);
  await new Promise((done) => log4js.shutdown(done));
  const text = fs.readFileSync(file, 'utf8');
  fs.rmSync(folder, { recursive: true });
  return text;
};
