import { PNG } from 'pngjs';
import jpeg from 'jpeg-js';
export default async () => {
  const png = new PNG({ width: 8, height: 8 });
  for (let i = 0; i < png.data.length; i++) png.data[i] = (i * 37) & 255;
  const bytes = PNG.sync.write(png);
  const back = PNG.sync.read(bytes);
  const viaStream = await new Promise((res, rej) => {
    const out = [];
    png
      .pack()
      .on('data', (c) => out.push(c))
      .on('end', () => res(Buffer.concat(out).length > 50))
      .on('error', rej);
  });
  const parsed = await new Promise((res, rej) =>
    new PNG().parse(bytes, (e, d) => (e ? rej(e) : res(d.width))),
  );
  const j = jpeg.encode({ data: png.data, width: 8, height: 8 }, 80);
  const d = jpeg.decode(j.data);
  return [
    back.data.equals(png.data),
    viaStream,
    parsed,
    j.data.toString('base64'),
    d.width,
    [...d.data.slice(0, 8)],
  ];
};
