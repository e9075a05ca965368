import JSZip from 'jszip';
import unzipper from 'unzipper';
import * as pako from 'pako';
export default async () => {
  const z = new JSZip();
  z.file('a.txt', 'hello'.repeat(100), { date: new Date(Date.UTC(2020, 0, 1)) });
  z.folder('d').file('b.bin', new Uint8Array([1, 2, 3]), { date: new Date(Date.UTC(2020, 0, 1)) });
  const buf = await z.generateAsync({ type: 'nodebuffer', compression: 'DEFLATE' });
  const streamed = await new Promise((r, j) => {
    const out = [];
    z.generateNodeStream({ streamFiles: true })
      .on('data', (d) => out.push(d))
      .on('end', () => r(Buffer.concat(out).length))
      .on('error', j);
  });
  const dir = await unzipper.Open.buffer(buf);
  const files = await Promise.all(
    dir.files.map(async (f) => [f.path, f.type, f.type === 'File' ? (await f.buffer()).length : 0]),
  );
  const back = await JSZip.loadAsync(buf);
  return [
    buf.length,
    streamed,
    files,
    await back
      .file('a.txt')
      .async('string')
      .then((s) => s.length),
    pako.inflate(pako.deflate('text'), { to: 'string' }),
    pako.ungzip(pako.gzip(new Uint8Array([1, 2]))),
  ];
};
