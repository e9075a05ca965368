import csvParser from 'csv-parser';
import * as fastcsv from 'fast-csv';
import { JSONPath } from 'jsonpath-plus';
import jmespath from 'jmespath';
import jsonata from 'jsonata';
import JSONStream from 'JSONStream';
import concat from 'concat-stream';
import pump from 'pump';
import { Readable as R2, pipeline } from 'readable-stream';
import { BufferList } from 'bl';
import duplexify from 'duplexify';
import getStream from 'get-stream';
import { Readable } from 'node:stream';
export default async () => {
  const rows = [];
  for await (const r of Readable.from(['a,b\n1,"2,3"\n']).pipe(csvParser())) rows.push({ ...r });
  const fc = [];
  await new Promise((res, rej) =>
    fastcsv
      .parseString('x,y\n1,2', { headers: true })
      .on('data', (r) => fc.push(r))
      .on('end', res)
      .on('error', rej),
  );
  const js = [];
  await new Promise((res) =>
    Readable.from(['{"r":[{"i":1},{"i":2}]}'])
      .pipe(JSONStream.parse('r.*'))
      .on('data', (d) => js.push(d))
      .on('end', res),
  );
  const cc = await new Promise((res) =>
    pump(
      Readable.from([Buffer.from('a'), Buffer.from('b')]),
      concat((b) => res(b.toString())),
    ),
  );
  const bl = new BufferList('abc');
  bl.append('def');
  return [
    rows,
    fc,
    await fastcsv.writeToString([{ a: 1, b: 'x,y' }], { headers: true }),
    JSONPath({ path: '$..a', json: { a: 1, b: { a: 2 } } }),
    jmespath.search({ a: [{ b: 1 }, { b: 2 }] }, 'a[?b > `1`].b'),
    await jsonata('$sum(a.b)').evaluate({ a: [{ b: 1 }, { b: 2 }] }),
    js,
    cc,
    bl.slice(2, 4).toString(),
    await getStream(Readable.from(['x', 'y'])),
    await new Promise((res) => {
      const o = [];
      R2.from([1, 2])
        .on('data', (d) => o.push(d))
        .on('end', () => res(o));
    }),
  ];
};
