// What a plugin and Node do alike: 100 MB through `node:http`, a million chunks through `pipeTo`, and a thousand
// concurrent requests of `fetch`, each against server.mjs. Returns milliseconds, and bytes of memory.

import http from 'node:http';

const CHUNKS = 1_000_000;
// A plugin is interrupted that runs for 10 s without a pause.
const PAUSE_EVERY = 20_000;

const pause = () => new Promise((resolve) => setTimeout(resolve));

const download = (port) =>
  new Promise((resolve, reject) => {
    const request = http.get({ host: '127.0.0.1', port, path: '/bytes' }, (response) => {
      let bytes = 0;
      response.on('data', (chunk) => {
        bytes += chunk.length;
      });
      response.on('end', () => resolve({ bytes }));
      response.on('error', reject);
    });
    request.on('error', reject);
  });

async function pipe(memory) {
  const before = memory();
  let peak = before;
  let sent = 0;
  let received = 0;
  const source = new ReadableStream({
    async pull(controller) {
      if (sent % PAUSE_EVERY === 0) {
        peak = Math.max(peak, memory());
        await pause();
      }
      controller.enqueue(sent);
      sent += 1;
      if (sent === CHUNKS) controller.close();
    },
  });
  const sink = new WritableStream({
    write() {
      received += 1;
    },
  });
  await source.pipeTo(sink);
  return { received, before, peak, after: memory() };
}

async function requests(port) {
  const answers = Array.from({ length: 1000 }, async (_, at) => {
    const response = await fetch(`http://127.0.0.1:${port}/${at}`);
    return (await response.text()) === `/${at}`;
  });
  return { right: (await Promise.all(answers)).every(Boolean) };
}

export async function measure(port, memory) {
  const figures = {};
  const timed = async (name, work) => {
    const begun = performance.now();
    const result = await work();
    figures[name] = { ms: Math.round(performance.now() - begun), ...result };
  };
  await download(port);
  await timed('download', () => download(port));
  await timed('pipeTo', () => pipe(memory));
  await timed('fetch', () => requests(port));
  return figures;
}
