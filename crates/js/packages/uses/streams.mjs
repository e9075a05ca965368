import async from 'async';
import through2 from 'through2';
import split2 from 'split2';
import { stringify } from 'csv-stringify/sync';
import { Readable } from 'node:stream';
export default async () => {
  const q = async.queue(async (t) => t * 2, 2);
  const pushed = await Promise.all([1, 2, 3].map((n) => q.pushAsync(n)));
  const auto = await async.auto({ a: async () => 1, b: ['a', async ({ a }) => a + 1] });
  const lines = [];
  for await (const l of Readable.from(['a\nb', 'c\r\n', 'd'])
    .pipe(split2())
    .pipe(
      through2.obj(function (l, e, cb) {
        this.push({ l: String(l) });
        cb(null);
      }),
    ))
    lines.push(l);
  return [
    pushed,
    auto,
    lines,
    stringify(
      [
        [1, 'a"b'],
        ['x,y', null],
      ],
      { header: true, columns: ['p', 'q'] },
    ),
    await async.mapLimit([1, 2, 3], 2, async (x) => x + 1),
    await async.retry(3, async () => 'ok'),
  ];
};
