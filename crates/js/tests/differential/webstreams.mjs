import { attempt, attemptLater, failure, quiet, Random, turns } from './lib.mjs';

// Turns of the event loop, not time: what they do is the same on a busy computer.
const later = turns;

const marks = [undefined, 0, 1, 2, 5, Infinity];

function strategy(from) {
  const random = new Random(from.next());
  const highWaterMark = random.one(marks);
  if (random.chance(25)) return { highWaterMark, size: (chunk) => random.one([1, 2, 0.5, chunk === 3 ? -1 : 1]) };
  return random.chance(30) ? undefined : { highWaterMark };
}

function source(from, log) {
  const random = new Random(from.next());
  let next = 0;
  const most = random.below(7);
  const act = (controller, name) => {
    log.push([name, controller.desiredSize]);
    const times = random.chance(20) ? 2 : 1;
    for (let at = 0; at < times; at += 1) {
      if (next >= most) {
        const how = random.below(10);
        if (how === 0) controller.error(new RangeError('source failed'));
        else if (how === 1) throw new Error('pull failed');
        else controller.close();
        return undefined;
      }
      next += 1;
      controller.enqueue(next);
    }
    return random.chance(30) ? later(1) : undefined;
  };
  return {
    start: random.chance(30) ? (controller) => act(controller, 'start') : undefined,
    pull: (controller) => act(controller, 'pull'),
    cancel: random.chance(80) ? (reason) => { log.push(['cancel', String(reason)]); if (reason === 'throw') throw new Error('cancel failed'); } : undefined,
  };
}

function sink(from, log) {
  const random = new Random(from.next());
  const bad = random.chance(20) ? random.below(5) : -1;
  let seen = 0;
  return {
    start: random.chance(30) ? () => { log.push(['sink start']); } : undefined,
    write: (chunk, controller) => {
      log.push(['write', chunk]);
      seen += 1;
      if (seen === bad) {
        if (random.chance(50)) throw new Error('write failed');
        controller.error(new Error('sink failed'));
      }
      return random.chance(40) ? later(1) : undefined;
    },
    close: () => { log.push(['close']); if (random.chance(10)) throw new Error('close failed'); },
    abort: (reason) => { log.push(['abort', String(reason)]); if (random.chance(10)) throw new Error('abort failed'); },
  };
}

const transformer = (from, log, random = new Random(from.next())) => ({
  transform: random.chance(80)
    ? (chunk, controller) => {
        log.push(['transform', chunk, controller.desiredSize]);
        if (random.chance(5)) controller.terminate();
        else if (random.chance(5)) throw new Error('transform failed');
        else for (let at = random.below(3); at >= 0; at -= 1) controller.enqueue(chunk * 10 + at);
        return random.chance(30) ? later(1) : undefined;
      }
    : undefined,
  flush: random.chance(50) ? (controller) => { log.push(['flush']); controller.enqueue('end'); } : undefined,
  cancel: random.chance(50) ? (reason) => { log.push(['transformer cancel', String(reason)]); } : undefined,
});

async function drain(stream, log, name) {
  log.push([`${name} ended`, await attemptLater(async () => {
    for await (const chunk of stream) log.push([name, chunk]);
    return 'done';
  })]);
}

async function reads(random, log) {
  const stream = new ReadableStream(source(random, log), strategy(random));
  const reader = stream.getReader();
  reader.closed.then(() => log.push(['closed']), (error) => log.push(['closed', failure(error)]));
  for (let at = 0; at < 8; at += 1) {
    const how = random.below(10);
    if (how < 7) {
      const read = attemptLater(() => reader.read()).then((got) => log.push(['read', got]));
      if (random.chance(60)) await read;
    } else if (how === 7) log.push(['cancelled', await attemptLater(() => reader.cancel(random.one(['why', 'throw', undefined])))]);
    else if (how === 8) log.push(['second reader', attempt(() => stream.getReader())]);
    else await later(1);
  }
  reader.releaseLock();
  log.push(['after release', await attemptLater(() => reader.read()), await attemptLater(() => reader.closed), stream.locked]);
}

async function writes(random, log) {
  const stream = new WritableStream(sink(random, log), strategy(random));
  const writer = stream.getWriter();
  writer.closed.then(() => log.push(['closed']), (error) => log.push(['closed', failure(error)]));
  for (let at = 0; at < 8; at += 1) {
    const how = random.below(12);
    log.push(['desiredSize', attempt(() => writer.desiredSize)]);
    if (how < 6) {
      const write = attemptLater(() => writer.write(at)).then((got) => log.push(['written', at, got]));
      if (random.chance(50)) await write;
    } else if (how < 8) log.push(['ready', await Promise.race([attemptLater(() => writer.ready), later(4).then(() => 'waits')])]);
    else if (how === 8) attemptLater(() => writer.close()).then((got) => log.push(['close', got]));
    else if (how === 9) attemptLater(() => writer.abort('why')).then((got) => log.push(['aborted', got]));
    else await later(1);
  }
  await later(5);
}

async function pipes(random, log) {
  const stop = new AbortController();
  const from = new ReadableStream(source(random, log), strategy(random));
  const to = new WritableStream(sink(random, log), strategy(random));
  const options = {
    preventClose: random.chance(20),
    preventAbort: random.chance(20),
    preventCancel: random.chance(20),
    signal: random.chance(40) ? stop.signal : undefined,
  };
  const through = random.chance(50) ? from.pipeThrough(new TransformStream(transformer(random, log), strategy(random), strategy(random))) : from;
  const piping = attemptLater(() => through.pipeTo(to, options));
  log.push(['locked', from.locked, to.locked]);
  if (random.chance(40)) {
    await later(random.below(3));
    stop.abort(random.chance(50) ? new Error('stopped') : undefined);
  }
  // A pipe that never ends has no event.
  log.push(['piped', await Promise.race([piping, later(60).then(() => 'waits')]), through.locked, to.locked]);
  await later(3);
}

async function transforms(random, log) {
  const { readable, writable } = new TransformStream(transformer(random, log), strategy(random), strategy(random));
  const reading = drain(readable, log, 'out');
  const writer = writable.getWriter();
  for (let at = 1; at < 5; at += 1) {
    attemptLater(() => writer.write(at)).then((got) => log.push(['written', at, got]));
    if (random.chance(30)) await later(1);
  }
  if (random.chance(80)) log.push(['close', await Promise.race([attemptLater(() => writer.close()), later(30).then(() => 'waits')])]);
  else log.push(['abort', await attemptLater(() => writer.abort('why'))]);
  await Promise.race([reading, later(20)]);
}

async function tees(random, log) {
  const [one, two] = new ReadableStream(source(random, log), strategy(random)).tee();
  const first = random.chance(50) ? drain(one, log, 'one') : attemptLater(() => one.cancel('one')).then((got) => log.push(['one cancelled', got]));
  if (random.chance(50)) await later(1);
  await (random.chance(60) ? drain(two, log, 'two') : attemptLater(() => Promise.race([two.cancel('two'), later(20)])).then((got) => log.push(['two cancelled', got])));
  await Promise.race([first, later(30)]);
}

async function bytes(from, log) {
  const random = new Random(from.next());
  const inside = new Random(from.next());
  let next = 0;
  const most = random.below(6);
  const stream = new ReadableStream({
    type: 'bytes',
    autoAllocateChunkSize: random.one([undefined, undefined, 4]),
    pull(controller) {
      const request = controller.byobRequest;
      log.push(['pull', controller.desiredSize, request?.view?.byteLength ?? null]);
      if (next >= most) {
        controller.close();
        request?.respond(0);
        return undefined;
      }
      next += 1;
      if (request && inside.chance(60)) {
        const many = Math.min(request.view.byteLength, 1 + inside.below(4));
        request.view.fill?.(next);
        if (inside.chance(70)) request.respond(many);
        else request.respondWithNewView(new Uint8Array(request.view.buffer, request.view.byteOffset, many));
      } else controller.enqueue(new Uint8Array(1 + inside.below(6)).fill(next));
      return inside.chance(30) ? later(1) : undefined;
    },
    cancel(reason) { log.push(['cancel', String(reason)]); },
  }, random.one([undefined, { highWaterMark: 3 }]));
  const parts = random.chance(25) ? stream.tee() : [stream];
  for (const [which, part] of parts.entries()) {
    for (let at = 0; at < 5; at += 1) {
      if (random.chance(60)) {
        const reader = part.getReader({ mode: 'byob' });
        const view = random.one([() => new Uint8Array(3), () => new Uint16Array(3), () => new Uint8Array(new ArrayBuffer(9), 2, 4), () => new DataView(new ArrayBuffer(4)), () => new Uint8Array(0)])();
        const got = await attemptLater(() => Promise.race([reader.read(view), later(20).then(() => 'waits')]));
        log.push([which, 'byob', got?.value instanceof DataView ? got.value.byteLength : got]);
        attempt(() => reader.releaseLock());
      } else {
        const reader = part.getReader();
        log.push([which, 'read', await attemptLater(() => Promise.race([reader.read(), later(20).then(() => 'waits')]))]);
        reader.releaseLock();
      }
    }
    if (random.chance(40)) log.push([which, 'cancelled', await attemptLater(() => Promise.race([part.cancel('why'), later(20)]))]);
  }
}

async function iterators(random, log) {
  const given = random.one([[1, 2, 3], new Set(['a', 'b']), 'xy', (async function* () { yield 1; yield 2; })(), [Promise.resolve(1), 2], [later(1).then(() => 5)]]);
  log.push(['from', await attemptLater(async () => {
    const stream = ReadableStream.from(given);
    const seen = [];
    const values = stream.values({ preventCancel: random.chance(50) });
    for await (const chunk of values) {
      seen.push(chunk);
      if (random.chance(20)) break;
    }
    return [seen, stream.locked, await attemptLater(() => stream.getReader().read())];
  })]);
}

export default async (seed) => {
  const rows = [];
  for (const run of [reads, writes, pipes, transforms, tees, bytes, iterators]) {
    const log = [];
    await Promise.race([attemptLater(() => run(new Random(seed * 100 + rows.length), log)).then((got) => log.push(['over', got])), quiet(log, 80)]);
    rows.push([`web streams: ${run.name}`, null, log]);
  }
  return rows;
};
