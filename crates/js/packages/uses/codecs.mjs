import { pack, unpack, Packr } from 'msgpackr';
import avro from 'avsc';
import { fileTypeFromBuffer } from 'file-type';
import mime from 'mime';
import qrcode from 'qrcode';
import { imageSize } from 'image-size';
export default async () => {
  const v = { a: [1, 2.5, 'ü', null, true], d: new Date(0), m: 2n ** 40n };
  const t = avro.Type.forSchema({
    type: 'record',
    name: 'R',
    fields: [
      { name: 'a', type: 'int' },
      { name: 's', type: { type: 'array', items: 'string' } },
    ],
  });
  const png = await qrcode.toBuffer('hello');
  return [
    pack({ a: 1, b: ['x'] }).toString('hex'),
    unpack(pack(v)).d.toISOString(),
    new Packr({ structuredClone: true })
      .unpack(new Packr({ structuredClone: true }).pack(new Map([[1, new Set([2])]])))
      .get(1)
      .has(2),
    t.fromBuffer(t.toBuffer({ a: 3, s: ['x', 'y'] })),
    await fileTypeFromBuffer(png),
    mime.getType('a.json'),
    await qrcode.toString('x', { type: 'utf8' }),
    imageSize(png).width,
  ];
};
