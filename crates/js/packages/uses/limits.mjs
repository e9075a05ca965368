import { RateLimiterMemory } from 'rate-limiter-flexible';
import Bottleneck from 'bottleneck';
import NodeCache from 'node-cache';
import Keyv from 'keyv';
export default async () => {
  const l = new RateLimiterMemory({ points: 2, duration: 10 });
  const a = await l.consume('k');
  await l.consume('k');
  const rej = await l.consume('k').catch((e) => [e.remainingPoints, e.consumedPoints]);
  const b = new Bottleneck({ maxConcurrent: 1, minTime: 5 });
  const order = [];
  await Promise.all([1, 2, 3].map((n) => b.schedule({ priority: 5 - n }, async () => order.push(n))));
  const c = new NodeCache({ stdTTL: 100 });
  c.set('a', { b: 1 });
  const k = new Keyv();
  await k.set('x', { y: new Date(0) });
  return [
    a.remainingPoints,
    rej,
    order,
    c.get('a'),
    c.getStats().hits,
    await k.get('x'),
    await k.delete('x'),
    (await k.get('x')) ?? null,
  ];
};
