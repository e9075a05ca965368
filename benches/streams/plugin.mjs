// measure.mjs in a plugin; its option `port` is the port of server.mjs. The figures are in the log.

import v8 from 'node:v8';

import { measure } from './measure.mjs';

export const name = 'streams';

export function apply(host, { port }) {
  setTimeout(async () => {
    const figures = await measure(port, () => v8.getHeapStatistics().used_heap_size);
    host.log(`figures ${JSON.stringify(figures)}`);
  }, 10);
}
